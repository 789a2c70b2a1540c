"""Rankings of trees that are drawn by hand, so that every number can be counted.

Rank correlations are compared with numbers worked out by hand, and with their definitions pair by pair.
"""

from functools import partial
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.worlds import Letters, Script, letters
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.policies.random_policy import legal_player
from tsr_gym.agents.probing.rankings import (
    Drops,
    Rated,
    find_drops,
    grow_rated,
    kendall,
    lost,
    rank_siblings,
    rank_turns,
    ranks,
    rate,
    siblings_walk,
    spearman,
    value_at,
)
from tsr_gym.agents.strategies import beam
from tsr_gym.tree import Expand
from tsr_gym.wrappers import TreeSearchWrapper

# Chances of success of every word: the letters a and b look good, and b is; c is a trap of the score.
VALUES = {"": 0.9, "a": 0.5, "b": 0.9, "c": 0.0, "d": 0.2, "ca": 0.0, "cb": 0.0, "ax": 1.0, "ab": 0.4}


class ValuedLetters(Letters):
    """Letters whose values stand in a table."""

    def best_value(self, state, turns_left, actions_left):
        return VALUES.get(state.text)


def valued_letters(pays, *, ends="x", turns=None):
    env = TreeSearchWrapper(ValuedLetters(pays, ends, turns))
    env.reset(seed=0)
    return env


def node(owner, parent, turn, score, value, *, prefix=True, kept=False, tree=None):
    return Rated(owner, owner if tree is None else tree, parent, turn, score, value, prefix, kept)


PAYS = {"a": 2.0, "b": 1.0, "c": 3.0, "d": 0.0, "x": 5.0}


def test_the_nodes_of_a_search_are_rated_by_merit_and_by_table():
    env = valued_letters(PAYS)
    script = Script({"": "abcd", "c": "ab"})
    tree = env.search(script, lambda view: iter([[Expand(0, 4)], [Expand(3, 2)]]))
    rated = rate([tree], [5], env.unwrapped)
    assert rated.num_unknown == 0
    by_word = {
        "".join(tree.nodes[step].candidate.text for step in tree.path(index)): each
        for index, each in zip(range(1, 7), rated.nodes, strict=True)
    }
    # Scores of turns add up along a path.
    scores = {"a": 2.0, "b": 1.0, "c": 3.0, "d": 0.0, "ca": 5.0, "cb": 4.0}
    assert {word: (each.score, each.value) for word, each in by_word.items()} == {
        word: (score, VALUES[word]) for word, score in scores.items()
    }
    assert {each.owner for each in rated.nodes} == {5}
    assert {word for word, each in by_word.items() if each.kept} == {"c"}


def test_what_a_search_chose_was_not_dropped():
    env = valued_letters(PAYS)
    tree = env.search(Script({"": "abcd"}), partial(beam, width=2, branching=4, depth=1))
    assert [each.kept for each in rate([tree], [0], env.unwrapped).nodes] == [True, False, True, False]


def test_an_episode_that_has_ended_is_worth_its_success_and_is_no_prefix():
    env = valued_letters(PAYS)
    tree = env.search(Script({"": "ax"}), partial(beam, width=1, branching=2, depth=1))
    a, x = rate([tree], [0], env.unwrapped).nodes
    assert (a.is_prefix, x.is_prefix, x.value) == (True, False, 1.0)
    # For an episode that a limit ended, the environment is asked, with no turn left.
    short = valued_letters(PAYS, turns=1)
    tree = short.search(Script({"": "b"}), partial(beam, width=1, branching=1))
    (b,) = rate([tree], [0], short.unwrapped).nodes
    assert not b.is_prefix


def test_states_without_a_value_are_counted_and_left_out():
    env = valued_letters(PAYS)
    tree = env.search(Script({"": "ab", "a": "ad", "b": "bx"}), partial(beam, width=2, branching=2, depth=2))
    rated = rate([tree], [0], env.unwrapped)
    # Of aa, ad, bb and bx only the last, a success, is known.
    assert (len(rated.nodes), rated.num_unknown) == (3, 3)
    plain = letters(PAYS, "x")
    assert value_at(plain.unwrapped, plain.tree, 0) is None


def test_the_limits_that_are_left_are_asked_for():
    asked = []

    class Asking(ValuedLetters):
        def best_value(self, state, turns_left, actions_left):
            asked.append((state.text, turns_left, actions_left))
            return 0.0

    env = TreeSearchWrapper(Asking(PAYS, "x", 3))
    env.reset(seed=0)
    tree = env.search(Script({"": "a", "a": "b"}), partial(beam, width=1, branching=1, depth=2))
    rate([tree], [0], env.unwrapped)
    assert asked == [("a", 2, None), ("ab", 1, None)]


def test_states_are_ranked_turn_by_turn():
    rated = [node(0, 0, 1, 1.0, 0.1), node(1, 0, 1, 2.0, 0.2), node(2, 0, 1, 3.0, 0.9), node(0, 1, 2, 1.0, 0.5)]
    first, second = rank_turns(rated)
    assert (first.turn, first.states, first.value) == (1, 3, pytest.approx(0.4))
    assert (first.spearman.mean, first.kendall) == (pytest.approx(1.0), pytest.approx(1.0))
    assert (second.states, second.spearman, second.kendall) == (1, None, None)


def test_candidates_of_one_state_are_ranked_among_themselves():
    rated = [
        # In the right order, though far above the scores of the other state: 0.2 lost by chance.
        *(node(0, 0, 1, 10 + number, value) for number, value in enumerate((0.2, 0.4, 0.6))),
        # Reversed: the best-scored candidate is the worst.
        *(node(1, 0, 1, -number, value) for number, value in enumerate((0.0, 1.0))),
        # All scores are equal.
        *(node(2, 0, 1, 0.0, value) for value in (0.3, 0.5)),
        # All values are equal; and an only child is no choice.
        *(node(3, 0, 1, number, 0.5) for number in (1.0, 2.0)),
        node(3, 1, 2, 1.0, 0.1),
    ]
    result = rank_siblings(rated)
    assert (result.sets, result.decided) == (3, 1)
    assert result.spearman.mean == pytest.approx((1 - 1 + 0) / 3)
    assert result.kendall.mean == pytest.approx((1 - 1 + 0) / 3)
    assert result.lost.mean == pytest.approx((0 + 1 + 0.1) / 3)
    assert result.lost_by_chance.mean == pytest.approx((0.2 + 0.5 + 0.1) / 3)


def test_a_shared_best_score_takes_any_and_without_nodes_there_are_no_estimates():
    assert lost([3.0, 3.0, 1.0], [0.0, 0.4, 1.0]) == pytest.approx(0.8)
    # Equal but for the last digits.
    assert lost([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1], [0.0, 1.0]) == pytest.approx(0.5)
    result = rank_siblings([])
    assert (result.sets, result.decided, result.spearman, result.lost) == (0, 0, None, None)
    assert rank_turns([]) == []
    assert find_drops([]) == Drops(0, None, 0, None, None, None)


def test_dropped_and_kept_prefixes_are_counted():
    rated = [
        # Turn 1: kept 0.4 and a dead one, dropped 0.7 and a dead one: 0.3 lost.
        node(0, 0, 1, 5.0, 0.4, kept=True),
        node(0, 0, 1, 4.0, 0.0, kept=True),
        node(0, 0, 1, 3.0, 0.7),
        node(0, 0, 1, 2.0, 0.0),
        # An episode that ended is neither.
        node(0, 0, 1, 9.0, 1.0, prefix=False),
        # Turn 2: the best was kept, nothing lost.
        node(0, 1, 2, 2.0, 0.4, kept=True),
        node(0, 1, 2, 1.0, 0.3),
        # Turn 3: nothing was kept, so there is nothing to compare.
        node(0, 6, 3, 1.0, 0.3),
    ]
    result = find_drops(rated)
    assert (result.dropped, result.kept) == (4, 3)
    assert result.winnable_dropped.mean == pytest.approx(3 / 4)
    assert result.dead_kept.mean == pytest.approx(1 / 3)
    assert result.winnable.mean == pytest.approx(5 / 7)
    assert result.lost_a_turn.mean == pytest.approx((0.3 + 0.0) / 2)
    # Turns of different trees are not mixed.
    rated = [node(0, 0, 1, 0.0, 0.1, kept=True, tree=0), node(0, 0, 1, 0.0, 0.9, tree=1)]
    assert find_drops(rated).lost_a_turn is None
    assert rank_siblings(rated).sets == 0


def test_the_walk_continues_from_the_first_candidate_with_any_score():
    env = valued_letters({**PAYS, "a": 0.0})
    tree = env.search(Script({"": "abc", "a": "bcx", "ab": "xcb"}), partial(siblings_walk, branching=3))
    assert [node.observation for node in tree.nodes[1:10]] == ["a", "b", "c", "ab", "ac", "ax", "abx", "abc", "abb"]


class Doomed(ValuedLetters):
    """Letters whose info marks words with a c as lost."""

    def step(self, action):
        *result, info = super().step(action)
        return *result, {**info, "dead_end": "c"} if "c" in self.state.text else info


def test_a_node_that_a_scorer_has_proved_lost_is_ranked_last():
    env = TreeSearchWrapper(Doomed(PAYS, "x"))
    env.reset(seed=0)
    tree = env.search(Script({"": "abcd"}), lambda view: iter([[Expand(0, 4)]]))
    rated = rate([tree], [0], env.unwrapped).nodes
    assert min(rated, key=lambda each: each.score).value == VALUES["c"]
    assert rank_siblings(rated).lost.mean == pytest.approx(0.9 - 0.5)


def test_trees_of_a_stage_do_not_depend_on_how_many_are_grown_together():
    pool = EnvPool("frozen_lake", {}, score="FrozenLakeScore")
    policy, strategy = legal_player(pool.base), partial(beam, width=2, branching=3)
    work = {"tasks": range(4), "seeds": range(2)}
    seen = []
    whole = grow_rated(pool, policy, strategy, **work, watch=seen.append)
    assert seen == [8]
    assert grow_rated(pool, policy, strategy, **work, batch=3, watch=seen.append) == whole
    assert seen == [8, 3, 6, 8]
    assert {each.owner for each in whole.nodes} == set(range(4))
    assert {each.tree for each in whole.nodes} == set(range(8))
    assert grow_rated(pool, policy, strategy, tasks=range(4), seeds=range(2, 4)) != whole


def test_a_score_from_the_oracle_loses_little():
    pool = EnvPool("sokoban", {}, score="SokobanScore(potential='oracle')")
    rated = grow_rated(pool, legal_player(pool.base), partial(siblings_walk, branching=6), tasks=range(25), seeds=(0,))
    result = rank_siblings(rated.nodes)
    assert result.sets > 10
    # A shorter solution is more likely to fit into the actions that the candidates leave.
    assert result.kendall.mean > 0.6
    assert result.lost.mean < 0.2 * result.lost_by_chance.mean


def test_equal_values_share_the_mean_of_their_ranks():
    assert ranks([10.0, 20.0, 10.0, 5.0]).tolist() == [2.5, 4.0, 2.5, 1.0]
    # Sums of the same rewards in another order differ in the last digits.
    assert ranks([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1, 0.0]).tolist() == [2.5, 2.5, 1.0]


@pytest.mark.parametrize(
    ("first", "second", "rho", "tau"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0, 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0, -1.0),
        # Rank differences 1, -1, 0, 0: 1 - 6 * 2 / (4 * 15); of six pairs one is turned round.
        ([1, 2, 3, 4], [2, 1, 3, 4], 0.8, 4 / 6),
        # Ranks 1.5 1.5 3.5 3.5 and 1 2 3 4: covariance 4, variances 4 and 5. Four pairs untied on the left, all agree.
        ([0, 0, 1, 1], [1, 2, 3, 4], 4 / sqrt(4 * 5), 4 / sqrt(4 * 6)),
        # Ties on both sides: ranks 1.5 1.5 3 and 1 2.5 2.5, deviations -.5 -.5 1 and -1 .5 .5: 0.75 of 1.5; pairs
        # 12 tied on the left, 23 tied on the right, 13 agrees.
        ([5, 5, 7], [1, 4, 4], 0.5, 1 / 2),
        # The nine pairs of two threes, half of them untied.
        ([1, 1, 1, 2, 2, 2], [1, 1, 2, 1, 2, 2], 1 / 3, (4 - 1) / 9),
    ],
)
def test_hand_worked_correlations(first, second, rho, tau):
    assert spearman(first, second) == pytest.approx(rho)
    assert kendall(first, second) == pytest.approx(tau)
    assert spearman(second, first) == pytest.approx(rho)
    assert kendall(second, first) == pytest.approx(tau)


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0]])
def test_with_a_constant_side_there_is_no_correlation(values):
    other = list(range(len(values)))
    for correlate in (spearman, kendall):
        assert correlate(values, other) is None
        assert correlate(other, values) is None


def pair_by_pair(first, second):
    """Return tau-b by its definition."""
    pairs = [(i, j) for i in range(len(first)) for j in range(i)]
    concordant = sum((first[i] - first[j]) * (second[i] - second[j]) > 0 for i, j in pairs)
    discordant = sum((first[i] - first[j]) * (second[i] - second[j]) < 0 for i, j in pairs)
    left = sum(first[i] != first[j] for i, j in pairs)
    right = sum(second[i] != second[j] for i, j in pairs)
    return (concordant - discordant) / sqrt(left * right) if left and right else None


def ranked(values):
    return [(sum(v < w for v in values) + sum(v <= w for v in values) + 1) / 2 for w in values]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14))
def test_correlations_are_their_definitions(pairs):
    first, second = [each for each, _ in pairs], [two for _, two in pairs]
    tau = pair_by_pair(first, second)
    if tau is None:
        assert kendall(first, second) is None
        assert spearman(first, second) is None
        return
    assert kendall(first, second) == pytest.approx(tau)
    assert spearman(first, second) == pytest.approx(np.corrcoef(ranked(first), ranked(second))[0, 1])
