"""Strategies against golden trees that were grown by hand, and the laws that hold between them.

A golden file holds a world (what each letter pays, which letters end a word, the limit of turns), what the policy says
after each word, and what must come of it: the wishes of every round, the nodes, and the finished words with their
worth. See `about` in each for the reasoning.
"""

import json
from functools import partial
from pathlib import Path

import pytest

from tests.agents.worlds import WALKER, Script, lake, letters, picture, rooms, words_of
from tsr_gym.agents import strategies
from tsr_gym.agents.random_policy import RandomPolicy
from tsr_gym.agents.search import search
from tsr_gym.agents.strategies import beam, best_of_n, lookahead, naive
from tsr_gym.agents.trajectory import harvest, harvest_all

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))


def test_every_strategy_has_a_golden_tree():
    assert {json.loads(path.read_text())["strategy"] for path in GOLDEN} == set(strategies.__all__)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_strategy_grows_the_tree_that_was_worked_out_by_hand(path):
    case = json.loads(path.read_text())
    env = letters(case["pays"], case["ends"], case["turns"], score_of=case.get("score_of", "turn"))
    grow = getattr(strategies, case["strategy"])
    rounds = []

    def watched(tree):
        for wishes in grow(tree, **case["numbers"]):
            rounds.append([list(wish) for wish in wishes])
            yield wishes

    policy = Script(case["says"])
    tree = env.search(policy, watched)
    assert rounds == case["rounds"]
    ends = {(True, False): "ended", (False, True): "cut", (False, False): "open"}
    grown = [[n.parent, n.candidate.text, ends[n.terminated, n.truncated]] for n in tree.nodes[1:]]
    assert grown == case["nodes"]
    assert policy.calls == len(case["rounds"])
    words = words_of(tree)
    finished = {words[leaf]: tree.merit(leaf) for leaf in tree.leaves() if tree.nodes[leaf].done}
    assert finished == case["finished"]
    if finished:
        best = next(iter(case["finished"]))
        assert harvest(tree)[0].score == case["finished"][best]


SINGLE = {
    "beam(1, 1)": partial(beam, width=1, branching=1),
    "best_of_n(1)": partial(best_of_n, n=1),
    "lookahead(1, 0)": partial(lookahead, branching=1, depth=0),
}


@pytest.mark.parametrize("strategy", SINGLE)
@pytest.mark.parametrize(
    ("world", "policy"),
    [(rooms, RandomPolicy(("Up", "Down", "Left", "Right"), max_actions=5)), (lake, WALKER)],
    ids=["Sokoban", "FrozenLake"],
)
def test_a_search_of_one_is_a_plain_rollout(world, policy, strategy):
    def played(strategy):
        envs = [world(seed) for seed in range(20)]
        trees = search(envs, policy, strategy, seeds=range(100, 120))
        assert all(len(harvest_all(tree)) == 1 for tree in trees)
        return [(harvest(tree), picture(tree)) for tree in trees]

    assert played(SINGLE[strategy]) == played(naive)


def test_ties_are_broken_by_the_seed_of_the_tree_and_by_nothing_else():
    def chosen(seed, strategy):
        env = letters({"a": 1.0, "b": 1.0}, turns=2, seed=seed)
        tree = env.search(Script({"": "ab", "a": "aba", "b": "aba"}), strategy)
        words = words_of(tree)
        # With width 1 and branching 2 the path that was followed is the one that has grandchildren.
        return next(words[node.parent] for node in tree.nodes if node.depth == 2)

    for strategy in (partial(beam, width=1, branching=2), partial(lookahead, branching=2, depth=0)):
        first = [chosen(seed, strategy) for seed in range(60)]
        assert first == [chosen(seed, strategy) for seed in range(60)]
        # Sixty throws of a fair coin: 30, give or take four standard deviations.
        assert 15 <= first.count("a") <= 45


def test_a_tie_of_more_than_one_turn_is_broken_by_where_a_node_is_and_not_by_its_number():
    def kept(order):
        env = letters({"a": 1.0, "b": 1.0, "c": 1.0}, turns=1, seed=7)
        tree = env.search(Script({"": order}), partial(best_of_n, n=3))
        best = tree.best(tree.leaves(), 1)[0]
        return tree.branch(best)

    assert kept("abc") == kept("cba")


@pytest.mark.parametrize("strategy", [naive, partial(best_of_n, n=3), partial(beam, width=2, branching=2)])
def test_a_search_at_the_end_of_an_episode_wants_nothing(strategy):
    env = letters({"a": 1.0}, "a")
    env.step("a")
    env.search(Script({}), strategy)
    assert len(env.tree.nodes) == 2


def test_a_search_below_the_cursor_counts_only_from_there():
    # The played turn a is worth 9; below it the better continuation is found all the same, in a search of two turns.
    env = letters({"a": 9.0, "b": 1.0, "c": 2.0}, turns=3)
    env.step("a")
    tree = env.search(Script({"a": "bc", "ab": "b", "ac": "c"}), partial(best_of_n, n=2))
    assert [trajectory.score for trajectory in harvest(tree, 2)] == [4.0, 2.0]
    assert tree.root == 1


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (partial(naive, rollouts=0), "wanted rollouts >= 1, got 0"),
        (partial(best_of_n, n=0), ">= 1, got 0"),
        (partial(beam, width=0, branching=2), "wanted width and branching >= 1, got 0 and 2"),
        (partial(beam, width=2, branching=-1), "wanted width and branching >= 1, got 2 and -1"),
        (partial(beam, width=2, branching=2, depth=0), "wanted depth >= 1 or None, got 0"),
        (partial(lookahead, branching=0, depth=1), "wanted branching >= 1 and depth >= 0, got 0 and 1"),
        (partial(lookahead, branching=1, depth=-1), "wanted branching >= 1 and depth >= 0, got 1 and -1"),
    ],
)
def test_impossible_numbers_are_refused(strategy, message):
    env = letters({"a": 1.0}, turns=2)
    with pytest.raises(ValueError, match=message):
        env.search(Script({"": "aaa", "a": "aaa"}), strategy)
    assert len(env.tree.nodes) == 1
