"""Beam search against exhaustive enumeration, and what merging changes; see the golden trees for the rest."""

from functools import partial

import pytest

from tests.agents.worlds import cycle, letters, priced, words_of
from tsr_gym.agents.strategies import beam


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_as_wide_as_the_world_finds_the_optimum(seed):
    pays, returns = priced(seed)
    ranking = sorted(returns, key=returns.get, reverse=True)
    tree = letters(pays, turns=4).search(cycle("abc"), partial(beam, width=27, branching=3))
    assert [words_of(tree)[end] for end in tree.chosen] == ranking[:27]
    narrow = letters(pays, turns=4).search(cycle("abc"), partial(beam, width=2, branching=3))
    assert narrow.merit(narrow.chosen[0]) <= returns[ranking[0]] + 1e-9


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

    def watched(tree):
        for wishes in beam(tree, width=6, branching=4, merge=merge):
            asked.append([tree.nodes[wish.node].observation for wish in wishes])
            yield wishes

    env.search(cycle("abcd"), watched)
    repeated = [len(words) - len(set(words)) for words in asked]
    assert any(repeated) == (merge is None)
    # By price: bb once, ab, bc and bd each in two orders. The six places hold four pairs, or six that differ.
    assert len(set(asked[2])) == (6 if merge else 4)


def test_where_everything_is_lost_the_beam_ends_at_a_dead_end():
    env = letters({"a": 1.0, "b": 2.0}, turns=3, dead=["a", "b"])
    tree = env.search(cycle("ab"), partial(beam, width=1, branching=2))
    assert [words_of(tree)[end] for end in tree.chosen] == ["b"]
    assert len(tree.nodes) == 3


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
