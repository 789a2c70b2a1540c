"""RandomPolicy: uniform over the numbers of actions and over the actions, and nothing but its seeds decides.

What is legal is compared with what each state allows, and against its exact value.
"""

from collections import Counter
from functools import partial

import gymnasium as gym
import pytest

from tests.agents.worlds import Letters, Word, lake, rooms
from tsr_gym import Expand, TsrGymError
from tsr_gym.agents.policies.random_policy import RandomPolicy, admissible_player, legal_player
from tsr_gym.agents.strategies import best_of_n
from tsr_gym.tree import Candidate
from tsr_gym.wrappers import AnswerFormat, TreeSearchWrapper

ACTIONS = ("Up", "Down", "Left")


def turns(policy, seeds):
    return [candidate for seed in seeds for candidate in policy([(rooms(seed).tree, Expand(0, 50))])[0]]


def test_every_number_of_actions_and_every_action_is_equally_likely():
    drawn = turns(RandomPolicy(ACTIONS, max_actions=4), range(20))
    found = [AnswerFormat.parse(candidate.text).split(" || ") for candidate in drawn]
    lengths = Counter(map(len, found))
    actions = Counter(action for turn in found for action in turn)
    # A thousand turns: 250 of each length and, of 2500 actions, 833 of each; give or take five standard deviations.
    assert set(lengths) == {1, 2, 3, 4}
    assert all(180 <= number <= 320 for number in lengths.values())
    assert set(actions) == set(ACTIONS)
    assert all(700 <= number <= 970 for number in actions.values())


def test_the_answers_have_the_form_that_is_wanted_and_no_tokens():
    (candidate,) = RandomPolicy(("Up",), form="<answer>{}</answer>")([(rooms().tree, Expand(0))])[0]
    assert candidate == Candidate("<answer>Up</answer>", (), (), ())


def test_an_answer_depends_on_the_tree_and_the_place_in_it_and_not_on_the_company():
    policy = RandomPolicy(ACTIONS, max_actions=5)
    first, second = rooms(1), rooms(2)
    together = policy([(first.tree, Expand(0, 3)), (second.tree, Expand(0, 3))])
    assert together == [policy([(env.tree, Expand(0, 3))])[0] for env in (first, second)]
    # Three at once are the same as one and then two.
    (one,) = policy([(first.tree, Expand(0, 1))])
    first.expand(0, one)
    (two,) = policy([(first.tree, Expand(0, 2))])
    assert [*one, *two] == together[0]


def test_wishes_for_one_node_and_deeper_nodes_draw_separate_answers():
    tree = rooms(1).tree
    policy = RandomPolicy(ACTIONS, max_actions=5)
    split = policy([(tree, Expand(0, 2)), (tree, Expand(0, 2))])
    assert [*split[0], *split[1]] == policy([(tree, Expand(0, 4))])[0]
    env = rooms(1)
    policy = RandomPolicy(ACTIONS, max_actions=5)
    left, right = env.expand(0, policy([(env.tree, Expand(0, 2))])[0])
    answers = policy([(env.tree, Expand(node, 8)) for node in (0, left, right)])
    assert len({repr(row) for row in answers}) == 3


class Growing(Letters):
    """Only the letters that a word does not hold yet are legal."""

    def legal_actions(self, state: Word):
        return tuple(letter for letter in "abc" if letter not in state.text)


def growing(kind=Growing):
    env = TreeSearchWrapper(kind({"a": 0.0, "b": 0.0, "c": 0.0}))
    env.reset(seed=1)
    return env


def test_only_what_is_legal_in_a_nodes_state_is_drawn_if_anything_is():
    env = growing()
    (b,) = env.expand(0, [Candidate("b")])
    at_root, at_b = legal_player(env.unwrapped)([(env.tree, Expand(0, 40)), (env.tree, Expand(b, 40))])
    assert {candidate.text for candidate in at_root} == {f"<think></think><answer>{name}</answer>" for name in "abc"}
    assert {candidate.text for candidate in at_b} == {f"<think></think><answer>{name}</answer>" for name in "ac"}
    env = growing()
    node = 0
    for letter in "abc":
        (node,) = env.expand(node, [Candidate(letter)])
    ((candidate,),) = legal_player(env.unwrapped)([(env.tree, Expand(node, 1))])
    assert candidate.text == "<think></think><answer></answer>"


def test_every_number_of_legal_actions_and_every_one_is_equally_likely():
    env = lake(max_actions_per_turn=3)
    (candidates,) = legal_player(env.unwrapped)([(env.tree, Expand(0, 3000))])
    turns = [text.split(">")[3].split("<")[0].split(" || ") for text in (one.text for one in candidates)]
    lengths = Counter(map(len, turns))
    # 3,000 draws: four standard deviations are 103 for lengths, and 134 for the 6,000 words.
    assert all(lengths[length] == pytest.approx(1000, abs=103) for length in (1, 2, 3))
    words = Counter(word for turn in turns for word in turn)
    assert set(words) == {"Left", "Down", "Right", "Up"}
    assert all(number == pytest.approx(sum(words.values()) / 4, abs=134) for number in words.values())


def test_environments_that_read_tags_get_the_bare_action_and_without_a_limit_one():
    class Tagged(Growing):
        reads_tags = True

    env = growing(Tagged)
    ((candidate,),) = legal_player(env.unwrapped)([(env.tree, Expand(0, 1))])
    assert candidate.text in tuple("abc")
    env = gym.make("tsr/FrozenLake-v0", max_actions_per_turn=None).unwrapped
    assert legal_player(env).max_actions == 1


class Story(gym.Env):
    """A foreign text game: it lists its commands, and punishes everything else."""

    observation_space = gym.spaces.Text(100)
    action_space = gym.spaces.Text(100)
    ROOMS = {"hall": ("go north", "go east"), "cellar": ("go up", "open chest"), "tower": ()}  # noqa: RUF012

    def __init__(self, key="admissible_commands", as_kind=list):
        self.key = key
        self.as_kind = as_kind
        self.room = "hall"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room = "hall"
        return self.room, self.told()

    def step(self, action):
        legal = self.ROOMS[self.room]
        if action not in legal:
            return "You cannot do that.", -10.0, False, False, self.told()
        self.room = {"go north": "cellar", "go up": "hall", "go east": "tower"}.get(action, self.room)
        won = action == "open chest"
        return self.room, float(won), won or self.room == "tower", False, self.told() | {"success": won}

    def told(self):
        return {self.key: self.as_kind(self.ROOMS[self.room]), "room": self.room}


def story(**settings):
    env = TreeSearchWrapper(Story(**settings))
    env.reset(seed=1)
    return env


def test_what_an_environment_of_others_lists_in_its_info_is_said_and_nothing_else():
    tree = story().search(admissible_player(), partial(best_of_n, n=12))
    ends = [tree.nodes[leaf] for leaf in tree.leaves()]
    assert all(end.terminated for end in ends)
    assert {end.solved for end in ends} == {True, False}
    assert min(node.reward for node in tree.nodes) == 0.0
    # At the first node both commands are equally likely: of 400, four standard deviations are 40.
    (first,) = admissible_player()([(tree, Expand(0, 400))])
    said = Counter(candidate.text for candidate in first)
    assert set(said) == {"go north", "go east"}
    assert said["go east"] == pytest.approx(200, abs=40)


def test_the_key_and_the_form_can_be_named_and_where_nothing_is_admissible_nothing_is_drawn():
    env = story(key="valid", as_kind=tuple)
    ((candidate,),) = admissible_player("valid", form="<answer>{}</answer>")([(env.tree, Expand(0))])
    assert candidate.text in ("<answer>go north</answer>", "<answer>go east</answer>")
    env = story()
    (tower,) = env.expand(0, ["go east"])
    assert admissible_player()([(env.tree, Expand(tower))]) == [[Candidate("")]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key": "valid"}, r"info\['admissible_commands'\] at node 0, got None; info has \['room', 'valid'\]"),
        ({"as_kind": lambda names: [list(names)]}, r"got \[\['go north', 'go east'\]\]"),
        ({"as_kind": " ".join}, "got 'go north go east'"),
    ],
)
def test_an_info_without_a_list_of_commands_is_refused(settings, message):
    with pytest.raises(TsrGymError, match=message):
        admissible_player()([(story(**settings).tree, Expand(0))])
