"""Raters: votes, weighted sums, and the values of a critic."""

from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.agents.tiny import ScriptedEngine, random_qwen2, save_chat_model
from tests.agents.worlds import WALKER, Script, lake, letters, picture, rooms
from tests.conftest import deep
from tests.tsr_gym_envs.retrieval_qa.fakes import qa
from tsr_gym import Candidate, CheckpointError, ConfigError, Node, PromptTooLong, Tree
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.models.critic import Critic
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.policies.prompts import History, compact_prompt
from tsr_gym.agents.raters import CriticValue, OwnScore, SelfConsistency, WeightedRater, make_rater
from tsr_gym.agents.strategies import beam
from tsr_gym.files import write_folder
from tsr_gym.wrappers import RetrievalQAScore, TreeSearchWrapper

VOTE = SelfConsistency()


def answer(text, thought=""):
    return f"<think>{thought}</think><answer>{text}</answer>"


def grown(env, *texts):
    """Expand the first node and return its children."""
    return [(env.tree, node) for node in env.expand(0, [Candidate(text) for text in texts])]


def test_a_candidate_gets_the_share_of_its_siblings_that_agree():
    env = letters({"a": 0.0, "b": 1.0}, turns=3)
    assert VOTE(grown(env, "a", "b", "a", "a")) == [0.75, 0.25, 0.75, 0.75]
    env = letters({"a": 0.0, "A": 0.0, "b": 1.0}, turns=3)
    folded = SelfConsistency(key=lambda node: node.candidate.text.lower())
    assert folded(grown(env, "a", "A", "b", "a")) == [0.75, 0.75, 0.25, 0.75]
    tree = Tree()
    tree.add(Node(None, 0, Candidate(""), 0, 0.0, 0.0, False, False, {}, None))
    for action in (1, 2, 1, np.array([1.0]), np.array([1.0])):
        tree.add(Node(0, 1, Candidate(action), 0, 0.0, 0.0, False, False, {}, None))
    assert VOTE([(tree, node) for node in range(1, 6)]) == [0.4, 0.2, 0.4, 0.4, 0.4]


def test_what_was_carried_out_counts_and_not_how_it_was_said():
    texts = [answer("Up", "first"), answer("up"), answer("Up || jump"), answer("Down"), "Up", answer("fly")]
    # Up was executed three times, in any case and with junk around it; two texts mean nothing and have no vote.
    env = rooms(3)
    names = [env.tree.nodes[node].info["executed"] for _, node in grown(env, *texts)]
    assert [name and name[0].lower() for name in names] == ["up", "up", "up", "down", (), ()]
    again = [(env.tree, node) for node in env.tree.children(0)]
    assert VOTE(again) == [2 / 6, 1 / 6, 2 / 6, 1 / 6, 0.0, 0.0]


def test_answers_in_words_are_compared_without_regard_to_case_and_blanks():
    env = TreeSearchWrapper(RetrievalQAScore(qa()))
    env.reset(seed=1)
    texts = ["hm <answer>Otto  Brand</answer>", "<answer>otto brand</answer>", "<answer>Ada Moor</answer>", "hm"]
    assert VOTE(grown(env, *texts)) == [0.5, 0.5, 0.25, 0.0]


def test_a_greedy_search_by_vote_follows_the_majority():
    says = {"": "aab", "a": "bab", "ab": "aab"}
    env = letters({"a": 0.0, "b": 5.0}, turns=3)
    (tree,) = search([env], Script(says), partial(beam, width=1, branching=3), seeds=[1], rater=VOTE)
    (end,) = tree.chosen
    assert tree.nodes[end].observation == "aba"
    # Two of three, three times: scores of turns add up.
    assert tree.merit(end) == pytest.approx(2.0)


def test_the_own_score_is_the_scorers_and_the_first_node_has_none():
    env = lake(2)
    nodes = grown(env, answer("Left"), answer("Right || Right"))
    assert OwnScore()(nodes) == [env.tree.nodes[node].info["score"] for _, node in nodes]
    with pytest.raises(ValueError, match="wanted nodes that grew"):
        VOTE([(letters({"a": 0.0}).tree, 0)])


def by_price(nodes):
    return [tree.nodes[node].reward for tree, node in nodes]


def by_letter(nodes):
    return [float(ord(tree.nodes[node].candidate.text)) for tree, node in nodes]


def test_a_sum_is_weighted():
    rater = WeightedRater({"own": (OwnScore(), 2.0), "vote": (VOTE, -4.0)})
    nodes = grown(letters({"a": 1.0, "b": 3.0}, turns=3), "a", "b", "a", "a")
    assert rater(nodes) == [2.0 - 3.0, 6.0 - 1.0, 2.0 - 3.0, 2.0 - 3.0]
    assert rater.parts(nodes) == {"own": [1.0, 3.0, 1.0, 1.0], "vote": [0.75, 0.25, 0.75, 0.75]}


def test_on_a_common_scale_every_tree_is_its_own_measure():
    one = letters({"a": 1.0, "b": 2.0, "c": 3.0}, turns=3)
    other = letters({"a": 100.0, "b": 500.0}, turns=3)
    flat = letters({"a": 0.1}, turns=3)
    rater = WeightedRater({"price": (by_price, 1.0), "letter": (by_letter, 10.0)}, standardise=True)
    nodes = [*grown(one, "c", "a"), *grown(other, "a", "b"), *grown(one, "b"), *grown(flat, "a", "a", "a")]
    # In the first tree 3, 1, 2 have the mean 2 and the standard deviation sqrt(2/3); in the second 100 and 500 lie one
    # each from the mean; the letters rise as the prices do. Equal scores all count 0.
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
        (lambda: make_rater("tsr_gym.seeds:derive_seed"), "made a int"),
        (lambda: make_rater("CriticValue(critic='runs/none')"), "wanted a ChatPolicy"),
        (lambda: WeightedRater({}), "at least one part"),
    ],
)
def test_what_is_no_rater_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


TURNS = ("Up", "Left || Down", "Right", "junk", "Down || Down")


def with_random_head(backbone):
    critic = Critic(backbone)
    torch.manual_seed(1)
    torch.nn.init.normal_(critic.head.weight)
    torch.nn.init.normal_(critic.head.bias)
    return critic


@pytest.fixture(scope="module")
def critic(tokenizer):
    return with_random_head(random_qwen2(tokenizer, context=512).model)


@pytest.fixture(scope="module")
def chat(tokenizer):
    """A policy that draws one of five turns by its seed."""

    def answer(prompt, seed):
        return tokenizer(TURNS[seed % len(TURNS)] + "</answer>")["input_ids"] + [tokenizer.eos_token_id]

    return ChatPolicy(ScriptedEngine(answer), tokenizer, compact_prompt(), History(None))


def room(seed, **settings):
    env = rooms(seed, **settings)
    env.env.think = False
    return env


def worth(critic, chat, tree, node):
    """Return a state's value by a forward pass of its prompt alone: an oracle without batches and without padding."""
    if tree.nodes[node].done:
        return 0.0
    ids = torch.tensor([chat.prompt_ids(tree, node)])
    hidden = critic.backbone(input_ids=ids, use_cache=False).last_hidden_state[0, -1]
    return (hidden @ critic.head.weight[0] + critic.head.bias[0]).item()


def searched(envs, chat, rater, seeds):
    return search(envs, chat, partial(beam, width=2, branching=3), seeds=seeds, rater=rater)


def test_where_scores_rate_turns_a_path_is_worth_its_return_and_the_gain_in_value(critic, chat):
    (tree,) = searched([room(3)], chat, CriticValue(critic, chat), [3])
    start = worth(critic, chat, tree, 0)
    assert tree.score_of == "turn"
    for index in range(1, len(tree.nodes)):
        wanted = tree.total(index, "reward") + worth(critic, chat, tree, index) - start
        assert tree.merit(index) == pytest.approx(wanted, abs=1e-3)
    assert {node.done for node in tree.nodes} == {True, False}


def test_where_scores_rate_states_a_node_is_worth_its_return_and_its_value(critic, chat):
    env = lake(5)
    env.get_wrapper_attr("env").env.think = False
    (tree,) = searched([env], chat, CriticValue(critic, chat), [5])
    assert tree.score_of == "state"
    for index in range(1, len(tree.nodes)):
        wanted = tree.total(index, "reward") + worth(critic, chat, tree, index)
        assert tree.nodes[index].score == pytest.approx(wanted, abs=1e-3)


def test_without_rewards_values_count_and_after_the_end_nothing(critic, chat):
    (tree,) = searched([room(3)], chat, CriticValue(critic, chat, reward=False), [3])
    start = worth(critic, chat, tree, 0)
    for index in range(1, len(tree.nodes)):
        assert tree.merit(index) == pytest.approx(worth(critic, chat, tree, index) - start, abs=1e-3)
    env = room(3, max_turns=1)
    tree = env.tree
    nodes = [(tree, node) for node in env.expand(0, [Candidate("<answer>Up</answer>")])]
    assert CriticValue(critic, chat).values(nodes) == {(id(tree), 1): 0.0}
    wanted = tree.nodes[1].reward - worth(critic, chat, tree, 0)
    assert CriticValue(critic, chat)(nodes) == [pytest.approx(wanted, abs=1e-4)]


def test_a_round_of_all_searches_is_one_forward_pass(critic, chat, monkeypatch):
    rows = []
    forward = Critic.forward

    def counted(self, ids, present):
        rows.append(len(ids))
        return forward(self, ids, present)

    monkeypatch.setattr(Critic, "forward", counted)
    seeds = [1, 2, 3]
    trees = searched([room(seed, max_turns=3) for seed in seeds], chat, CriticValue(critic, chat), seeds)
    assert len(rows) == max(node.depth for tree in trees for node in tree.nodes)
    # At most three candidates for each tree and the state that they grew from; equal prompts are asked once.
    firsts = [{tree.nodes[node].candidate.text for node in tree.children(0)} for tree in trees]
    assert rows[0] == 3 + sum(map(len, firsts))


SEEDS = (4, 5, 6)


@pytest.fixture(scope="module")
def alone(critic, chat):
    """Trees that were searched one by one."""
    return [searched([room(seed)], chat, CriticValue(critic, chat), [seed])[0] for seed in SEEDS]


@pytest.mark.parametrize("max_batch", [256, deep(5), 1])
def test_what_else_is_rated_changes_no_choice_and_no_more_than_the_last_digits(critic, chat, alone, max_batch):
    rater = CriticValue(critic, chat, max_batch=max_batch)
    together = searched([room(seed) for seed in SEEDS], chat, rater, SEEDS)
    for tree, other in zip(together, alone, strict=True):
        assert tree.chosen == other.chosen
        assert [node.candidate for node in tree.nodes] == [node.candidate for node in other.nodes]
        assert [node.score for node in tree.nodes] == pytest.approx([node.score for node in other.nodes], abs=2.1e-4)


def test_by_tree_not_a_bit_depends_on_what_else_is_rated_and_equal_texts_are_worth_the_same(critic, chat):
    rater = CriticValue(critic, chat, by_tree=True, digits=12)
    together = searched([room(seed) for seed in SEEDS], chat, rater, SEEDS)
    alone = [searched([room(seed)], chat, rater, [seed])[0] for seed in SEEDS]
    assert [picture(tree) for tree in together] == [picture(tree) for tree in alone]
    env = room(3)
    nodes = [(env.tree, node) for node in env.expand(0, [Candidate("<answer>Up</answer>")] * 3)]
    assert len(set(CriticValue(critic, chat, digits=12)(nodes))) == 1


def expanded(*texts):
    """Return the children of a room's first node."""
    env = room(3)
    return [(env.tree, node) for node in env.expand(0, [Candidate(text) for text in texts])]


def test_it_can_be_part_of_a_sum(critic, chat):
    nodes = expanded("<answer>Up</answer>", "junk")
    value = CriticValue(critic, chat, reward=False)
    summed = WeightedRater({"own": (OwnScore(), 1.0), "value": (value, 0.5)})
    own = [tree.nodes[node].score for tree, node in nodes]
    assert summed(nodes) == [score + 0.5 * gain for score, gain in zip(own, value(nodes), strict=True)]


def test_a_state_that_the_critic_cannot_read_is_named(tokenizer, chat):
    short = with_random_head(random_qwen2(tokenizer, context=16).model)
    nodes = expanded("<answer>Up</answer>")
    with pytest.raises(PromptTooLong, match="at most 15 tokens"):
        CriticValue(short, chat)(nodes)


def test_a_checkpoints_critic_is_read_by_name(tmp_path, critic, chat, tokenizer):
    def write(folder):
        save_chat_model(folder / "model", context=512)
        save_file(trained.state_dict(), folder / "critic.safetensors")

    trained = with_random_head(random_qwen2(tokenizer, context=512, seed=3).model)
    write_folder(tmp_path / "000010", write)
    nodes = expanded("<answer>Up</answer>")
    rater = make_rater(f"CriticValue(critic={str(tmp_path / '000010')!r}, device='cpu')", chat=chat)
    assert rater(nodes) == CriticValue(trained, chat)(nodes)
    assert rater(nodes) != CriticValue(critic, chat)(nodes)


def test_a_head_that_was_saved_alone_is_read_off_the_checkpoints_policy(tmp_path, chat, tokenizer):
    def write(folder):
        random_qwen2(tokenizer, context=512, seed=3).save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        save_file(head, folder / "critic.safetensors")

    trained = with_random_head(random_qwen2(tokenizer, context=512, seed=3).model)
    head = {name: value for name, value in trained.state_dict().items() if name.startswith("head.")}
    write_folder(tmp_path / "000010", write)
    nodes = expanded("<answer>Up</answer>")
    found = CriticValue(tmp_path / "000010", chat, device="cpu")(nodes)
    assert found == CriticValue(trained, chat)(nodes)
    del head["head.bias"]
    write_folder(tmp_path / "000011", write)
    with pytest.raises(CheckpointError, match=r"not a checkpoint with a critic"):
        CriticValue(tmp_path / "000011", chat, device="cpu")


def test_a_checkpoint_without_a_critic_is_refused(tmp_path, chat):
    write_folder(tmp_path / "000010", lambda folder: save_chat_model(folder / "model"))
    with pytest.raises(CheckpointError, match="train with PPO"):
        CriticValue(tmp_path / "000010", chat, device="cpu")
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        CriticValue(tmp_path / "none", chat, device="cpu")
