"""Best-first search against a twin that sorts all open nodes anew in every round."""

from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.worlds import cycle, letters, priced, words_of
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import best_first


def by_sorting(value, is_done, *, expansions, samples, parallel, alphabet):
    """Return the words in the order in which they grow; values must differ."""
    grown, closed = [], set()
    waiting = [""]
    while expansions and waiting:
        number = min(parallel, expansions)
        batch = sorted(waiting, key=value, reverse=True)[:number]
        waiting = [word for word in waiting if word not in batch]
        expansions -= len(batch)
        for word in batch:
            new = [word + letter for letter in alphabet[:samples]]
            grown += new
            closed.add(word)
            waiting += [child for child in new if not is_done(child)]
    return grown


@given(
    seed=st.integers(0, 10**6),
    expansions=st.integers(1, 12),
    samples=st.integers(1, 3),
    parallel=st.integers(1, 4),
    ends=st.sampled_from(["", "c", "bc"]),
)
def test_the_best_open_node_is_expanded(seed, expansions, samples, parallel, ends):
    pays, _ = priced(seed)
    total = lambda word: sum(pays[word[:end]] for end in range(1, len(word) + 1))  # noqa: E731
    numbers = {"expansions": expansions, "samples": samples, "parallel": parallel}
    wanted = by_sorting(total, lambda word: len(word) == 4 or word[-1] in ends, **numbers, alphabet="abc")
    tree = letters(pays, ends, turns=4).search(cycle("abc"), partial(best_first, **numbers))
    words = words_of(tree)
    assert words[1:] == wanted
    finished = [words[leaf] for leaf in tree.leaves() if tree.nodes[leaf].done]
    leaves = sorted((words[leaf] for leaf in tree.leaves()), key=total, reverse=True)
    chosen = sorted(finished, key=total, reverse=True) or leaves[:1]
    assert [words[end] for end in tree.chosen] == chosen


def visited(seed, value, expansions=13):
    asked = []

    def watched(tree):
        for wishes in best_first(tree, expansions=expansions, samples=3, value=value):
            asked.extend(words_of(tree)[wish.node] for wish in wishes)
            yield wishes

    letters({"a": 1.0, "b": 1.0, "c": 1.0}, turns=3, seed=seed).search(cycle("abc"), watched)
    return asked


@pytest.mark.parametrize("seed", range(5))
def test_with_the_depth_as_value_it_searches_depth_first(seed):
    order = visited(seed, lambda tree, node: float(tree.nodes[node].depth))
    # For every order of ties: after a word its descendants are expanded, and only then a sibling.
    assert len(set(order)) == 13
    for before, after in pairwise(order):
        assert after[:-1] == before if len(before) < 2 else after[:-1] == before[: len(after) - 1]
    assert [len(word) for word in order] == [0, 1, 2, 2, 2, 1, 2, 2, 2, 1, 2, 2, 2]


def test_with_its_negative_it_searches_breadth_first():
    order = visited(3, lambda tree, node: -float(tree.nodes[node].depth))
    assert [len(word) for word in order] == [0] + [1] * 3 + [2] * 9


def test_a_critic_that_knows_the_future_goes_straight_to_the_optimum():
    pays, returns = priced(11)
    best = max(returns, key=returns.get)

    def future(tree, node):
        word = words_of(tree)[node]
        return max(value for full, value in returns.items() if full.startswith(word))

    tree = letters(pays, turns=4).search(cycle("abc"), partial(best_first, expansions=4, samples=3, value=future))
    assert words_of(tree)[tree.chosen[0]] == best


def asked_for(expansions, merge, policy, samples=3):
    """Return the words that were expanded, where the order of letters does not matter."""
    asked = []

    def watched(tree):
        for wishes in best_first(tree, expansions=expansions, samples=samples, merge=merge):
            asked.extend(tree.nodes[wish.node].observation for wish in wishes)
            yield wishes

    env = letters({"a": 1.0, "b": 2.0, "c": 0.5}, turns=4, bag=True)
    env.search(policy, watched)
    return asked


@pytest.mark.parametrize("merge", ["state", "turns"])
def test_merging_expands_every_state_once_before_any_is_sampled_again(merge):
    asked = asked_for(30, merge, cycle("abc"))
    # Of three letters there are 1, 3, 6 and 10 bags of up to three.
    assert len(asked) == 30
    assert len(set(asked[:20])) == 20
    # The dearest words first, and no state a third time before all were sampled a second.
    assert asked[20:22] == ["bbb", "abb"]
    assert len(set(asked[20:])) == 10


def test_without_merging_words_of_the_same_letters_are_all_expanded():
    asked = asked_for(99, None, cycle("abc"))
    assert len(asked) == 1 + 3 + 9 + 27
    assert len(set(asked)) == 20


@pytest.mark.parametrize("seed", range(5))
def test_more_expansions_reach_more_states_although_most_samples_change_nothing(seed):
    # A policy that mostly repeats its answers.
    policy = RandomPolicy("aaaaaaaaabcdef", form="{}")

    def states(expansions):
        env = letters(dict.fromkeys("abcdef", 1.0), turns=5, seed=seed, bag=True)
        tree = env.search(policy, partial(best_first, expansions=expansions, samples=2, merge="state"))
        return len({node.state_key for node in tree.nodes})

    few, more, many = states(15), states(60), states(120)
    assert few < more < many


def test_sampling_again_repeats_nothing_that_was_said_before():
    tree = letters({"a": 1.0, "b": 2.0, "c": 0.5}, turns=1, bag=True).search(
        cycle("abc"), partial(best_first, expansions=3, samples=1, merge="state")
    )
    assert words_of(tree) == ["", "a", "b", "c"]
