"""RandomPolicy: uniform over the numbers of actions and over the actions, and nothing but its seeds decides."""

from collections import Counter

from tests.agents.worlds import rooms
from tsr_gym import Expand
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.wrappers import AnswerFormat

ACTIONS = ("Up", "Down", "Left")


def turns(policy, seeds):
    return [candidate for seed in seeds for candidate in policy([(rooms(seed).tree, Expand(0, 50))])[0]]


def test_every_number_of_actions_and_every_action_is_equally_likely():
    found = [
        AnswerFormat.parse(candidate.text).split(" || ")
        for candidate in turns(RandomPolicy(ACTIONS, max_actions=4), range(20))
    ]
    lengths = Counter(map(len, found))
    actions = Counter(action for turn in found for action in turn)
    # A thousand turns: 250 of each length and, of 2500 actions, 833 of each; give or take five standard deviations.
    assert set(lengths) == {1, 2, 3, 4}
    assert all(180 <= number <= 320 for number in lengths.values())
    assert set(actions) == set(ACTIONS)
    assert all(700 <= number <= 970 for number in actions.values())


def test_the_answers_have_the_form_that_is_wanted_and_no_tokens():
    (candidate,) = RandomPolicy(("Up",), form="<answer>{}</answer>")([(rooms().tree, Expand(0))])[0]
    assert candidate == ("<answer>Up</answer>", (), (), ())


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


def test_two_wishes_for_one_node_in_a_round_are_different_children():
    tree = rooms(1).tree
    policy = RandomPolicy(ACTIONS, max_actions=5)
    split = policy([(tree, Expand(0, 2)), (tree, Expand(0, 2))])
    assert [*split[0], *split[1]] == policy([(tree, Expand(0, 4))])[0]


def test_deeper_nodes_draw_their_own_answers():
    env = rooms(1)
    policy = RandomPolicy(ACTIONS, max_actions=5)
    left, right = env.expand(0, policy([(env.tree, Expand(0, 2))])[0])
    answers = policy([(env.tree, Expand(node, 8)) for node in (0, left, right)])
    assert len({repr(row) for row in answers}) == 3
