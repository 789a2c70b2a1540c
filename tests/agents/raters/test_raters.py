"""Raters: votes counted by hand, sums, common scales, and that no tree hears of another."""

from functools import partial

import pytest

from tests.agents.worlds import WALKER, Script, lake, letters, picture, rooms
from tests.tsr_gym_envs.retrieval_qa.fakes import qa
from tsr_gym import Candidate, ConfigError, Node, Tree
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.raters import OwnScore, SelfConsistency, WeightedRater, make_rater
from tsr_gym.agents.strategies import beam
from tsr_gym.wrappers import RetrievalQAScore, TreeSearchWrapper

VOTE = SelfConsistency()


def answer(text, thought=""):
    return f"<think>{thought}</think><answer>{text}</answer>"


def grown(env, *texts):
    """Expand the first node and return what grew."""
    return [(env.tree, node) for node in env.expand(0, [Candidate(text) for text in texts])]


def test_a_candidate_gets_the_share_of_its_siblings_that_say_the_same():
    env = letters({"a": 0.0, "b": 1.0}, turns=3)
    assert VOTE(grown(env, "a", "b", "a", "a")) == [0.75, 0.25, 0.75, 0.75]


def test_what_was_carried_out_counts_and_not_how_it_was_said():
    texts = [answer("Up", "first"), answer("up"), answer("Up || jump"), answer("Down"), "Up", answer("fly")]
    # Three times Up was carried out, in whatever case and with junk beside it; two texts mean nothing and have no vote.
    env = rooms(3)
    names = [env.tree.nodes[node].info["executed"] for _, node in grown(env, *texts)]
    assert [name and name[0].lower() for name in names] == ["up", "up", "up", "down", (), ()]
    expected = {"Up": 2 / 6, "up": 1 / 6}
    again = [(env.tree, node) for node in env.tree.children(0)]
    assert VOTE(again) == [expected["Up"], expected["up"], expected["Up"], 1 / 6, 0.0, 0.0]


def test_answers_in_words_are_compared_without_regard_to_case_and_blanks():
    env = TreeSearchWrapper(RetrievalQAScore(qa()))
    env.reset(seed=1)
    texts = ["hm <answer>Otto  Brand</answer>", "<answer>otto brand</answer>", "<answer>Ada Moor</answer>", "hm"]
    assert VOTE(grown(env, *texts)) == [0.5, 0.5, 0.25, 0.0]


def test_what_agrees_can_be_ones_own():
    env = letters({"a": 0.0, "A": 0.0, "b": 1.0}, turns=3)
    folded = SelfConsistency(key=lambda node: node.candidate.text.lower())
    assert folded(grown(env, "a", "A", "b", "a")) == [0.75, 0.75, 0.25, 0.75]


def test_actions_that_are_no_text_are_compared_as_they_are():
    import numpy as np

    tree = Tree()
    tree.add(Node(None, 0, Candidate(""), 0, 0.0, 0.0, False, False, {}, None))
    for action in (1, 2, 1, np.array([1.0]), np.array([1.0])):
        tree.add(Node(0, 1, Candidate(action), 0, 0.0, 0.0, False, False, {}, None))
    assert VOTE([(tree, node) for node in range(1, 6)]) == [0.4, 0.2, 0.4, 0.4, 0.4]


def test_a_greedy_search_by_vote_follows_the_majority():
    says = {"": "aab", "a": "bab", "ab": "aab"}
    env = letters({"a": 0.0, "b": 5.0}, turns=3)
    (tree,) = search([env], Script(says), partial(beam, width=1, branching=3), seeds=[1], rater=VOTE)
    (end,) = tree.chosen
    assert tree.nodes[end].observation == "aba"
    # Two of three, three times: scores of turns add up.
    assert tree.merit(end) == pytest.approx(2.0)


def test_the_own_score_is_what_the_environments_scorer_gave():
    env = lake(2)
    nodes = grown(env, answer("Left"), answer("Right || Right"))
    assert OwnScore()(nodes) == [env.tree.nodes[node].info["score"] for _, node in nodes]


def by_price(nodes):
    return [tree.nodes[node].reward for tree, node in nodes]


def by_letter(nodes):
    return [float(ord(tree.nodes[node].candidate.text)) for tree, node in nodes]


def test_a_sum_is_weighted():
    rater = WeightedRater({"own": (OwnScore(), 2.0), "vote": (VOTE, -4.0)})
    env = letters({"a": 1.0, "b": 3.0}, turns=3)
    nodes = grown(env, "a", "b", "a", "a")
    assert rater(nodes) == [2.0 - 3.0, 6.0 - 1.0, 2.0 - 3.0, 2.0 - 3.0]
    assert rater.parts(nodes) == {"own": [1.0, 3.0, 1.0, 1.0], "vote": [0.75, 0.25, 0.75, 0.75]}


def test_on_a_common_scale_every_tree_is_its_own_measure():
    one = letters({"a": 1.0, "b": 2.0, "c": 3.0}, turns=3)
    other = letters({"a": 100.0, "b": 500.0}, turns=3)
    flat = letters({"a": 0.1}, turns=3)
    rater = WeightedRater({"price": (by_price, 1.0), "letter": (by_letter, 10.0)}, standardise=True)
    nodes = [*grown(one, "c", "a"), *grown(other, "a", "b"), *grown(one, "b"), *grown(flat, "a", "a", "a")]
    # In the first tree 3, 1, 2 have the mean 2 and the standard deviation sqrt(2/3); in the second 100 and 500 lie one
    # each from the mean; the letters rise as the prices do. Where all are equal there is nothing to say.
    sigma = (2 / 3) ** 0.5
    assert rater(nodes) == pytest.approx([11 / sigma, -11 / sigma, -11, 11, 0, 0, 0, 0])


@pytest.mark.parametrize(
    "rater",
    [
        OwnScore(),
        VOTE,
        WeightedRater({"own": (OwnScore(), 1.0), "vote": (VOTE, 2.0)}),
        WeightedRater({"own": (OwnScore(), 1.0), "vote": (VOTE, 2.0)}, standardise=True),
    ],
    ids=["own", "vote", "sum", "common scale"],
)
@pytest.mark.parametrize("workers", [None, 2])
def test_what_a_rater_says_does_not_depend_on_the_other_trees(rater, workers):
    seeds = [5, 6, 7, 8]

    def trees(seeds, workers=None):
        strategy = partial(beam, width=2, branching=3)
        envs = [lake(seed) for seed in seeds]
        return [picture(tree) for tree in search(envs, WALKER, strategy, seeds=seeds, rater=rater, workers=workers)]

    assert trees(seeds, workers) == [tree for seed in seeds for tree in trees([seed])]


def test_raters_are_named_as_a_configuration_names_them():
    text = "WeightedRater(parts={'own': ('OwnScore()', 1), 'vote': ('SelfConsistency', 0.5)}, standardise=True)"
    rater = make_rater(text)
    assert type(rater) is WeightedRater
    assert rater.weights == {"own": 1.0, "vote": 0.5}
    assert {name: type(part) for name, part in rater.raters.items()} == {"own": OwnScore, "vote": SelfConsistency}
    assert rater.standardise


def speaks(chat):
    """Make a rater that needs the model; named by its path in a test."""
    return lambda nodes: [chat] * len(nodes)


def test_a_rater_that_needs_the_model_gets_it():
    assert make_rater(f"{__name__}:speaks", chat="model")([1, 2]) == ["model", "model"]
    nested = WeightedRater({"one": (f"{__name__}:speaks", 1.0)}, chat=2.0)
    assert nested([0]) == [2.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_rater("NoSuchRater"), "there is no rater 'NoSuchRater': wanted one of CriticValue"),
        (lambda: make_rater("OwnScore(depth=3)"), r"the rater 'OwnScore' has no \['depth'\]"),
        (lambda: make_rater("tsr_gym.seeds:derive_seed"), "made a int"),
        (lambda: make_rater("CriticValue(critic='runs/none')"), "wanted a ChatPolicy"),
        (lambda: WeightedRater({}), "at least one part"),
    ],
)
def test_what_is_no_rater_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_the_first_node_did_not_grow():
    with pytest.raises(ValueError, match="wanted nodes that grew"):
        VOTE([(letters({"a": 0.0}).tree, 0)])
