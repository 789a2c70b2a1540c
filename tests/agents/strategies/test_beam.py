"""Beam search, greedy search and lookahead."""

from functools import partial

import pytest

from tests.agents.worlds import WALKER, cycle, lake, letters, picture, priced, rooms, watch, words_of
from tsr_gym import Expand
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import beam, lookahead


@pytest.mark.parametrize("seed", range(5))
def test_each_rank_keeps_what_it_says(seed):
    """Against a beam over plain words."""
    pays, _ = priced(seed)
    total = lambda word: sum(pays[word[:end]] for end in range(1, len(word) + 1))  # noqa: E731
    for rank, worth in (("sum", total), ("merit", total), ("last", pays.__getitem__)):
        members = [""]
        for _ in range(4):
            members = sorted((m + letter for m in members for letter in "abc"), key=worth, reverse=True)[:3]
        tree = letters(pays, turns=4).search(cycle("abc"), partial(beam, width=3, branching=3, rank=rank))
        assert [words_of(tree)[end] for end in tree.chosen] == members
    tree = letters(pays, turns=4, score_of="state").search(cycle("abc"), partial(beam, width=3, branching=3))
    assert [words_of(tree)[end] for end in tree.chosen] == members


@pytest.mark.parametrize("merge", [None, "state", "turns"])
def test_merging_expands_no_state_twice_in_a_turn(merge):
    env = letters({"a": 1.0, "b": 2.0, "c": 0.5, "d": 0.25}, turns=5, bag=True)
    asked = []
    bags = lambda tree, wishes: [[tree.nodes[wish.node].observation for wish in wishes]]  # noqa: E731
    env.search(cycle("abcd"), watch(partial(beam, width=6, branching=4, merge=merge), asked, bags))
    repeated = [len(words) - len(set(words)) for words in asked]
    assert any(repeated) == (merge is None)
    # By price: bb once, ab, bc and bd each in two orders. The six places hold four pairs, or six that differ.
    assert len(set(asked[2])) == (6 if merge else 4)


def test_a_beam_that_ends_at_a_success_saves_the_rest_and_chooses_what_solved():
    # x ends the word for little, so that it leaves the beam; y ends it for more, a turn later.
    pays = {"a": 2.0, "b": 3.0, "x": -1.0, "ay": 9.0, "by": 8.0, "y": -5.0}
    env = lambda: letters(pays, ends="xy", turns=4)  # noqa: E731
    first = env().search(cycle("abxy"), partial(beam, width=2, branching=4, until_success=True))
    assert [words_of(first)[end] for end in first.chosen] == ["x", "y"]
    assert len(first.nodes) == 1 + 4
    on = env().search(cycle("abxy"), partial(beam, width=2, branching=4))
    assert len(on.nodes) > len(first.nodes)
    # Where nothing ends the word, it is a beam as any other.
    plain, never = (env().search(cycle("ab"), partial(beam, until_success=until)) for until in (False, True))
    assert [words_of(never)[end] for end in never.chosen] == [words_of(plain)[end] for end in plain.chosen]


PUSHER = RandomPolicy(("Up", "Down", "Left", "Right"), max_actions=2)


def one_rollout(tree, *, branching, depth):
    """Look ahead with one rollout per candidate, each followed by its own loop."""
    here = tree.root
    while not tree.nodes[here].done:
        yield [Expand(here, branching)]
        ends = {child: child for child in tree.children(here)[-branching:]}
        for _ in range(depth):
            wishes = [Expand(end) for end in ends.values() if not tree.nodes[end].done]
            if not wishes:
                break
            yield wishes
            ends = {child: tree.children(end)[-1] if not tree.nodes[end].done else end for child, end in ends.items()}
        chosen = tree.best(list(ends.values()), 1)[0]
        here = next(child for child, end in ends.items() if end == chosen)


@pytest.mark.parametrize(("branching", "depth"), [(4, 2), (2, 0), (3, 1), (1, 3)])
@pytest.mark.parametrize(("world", "policy"), [(rooms, PUSHER), (lake, WALKER)], ids=["Sokoban", "FrozenLake"])
def test_one_rollout_a_candidate_grows_the_trees_of_the_plain_loop(world, policy, branching, depth):
    def grown(strategy):
        trees = search([world(seed) for seed in range(5)], policy, strategy, seeds=range(50, 55))
        return [picture(tree) for tree in trees]

    numbers = {"branching": branching, "depth": depth}
    wanted = grown(partial(one_rollout, **numbers))
    assert grown(partial(lookahead, **numbers)) == wanted
    assert grown(partial(lookahead, **numbers, reduce="max")) == wanted
