"""Credit rules, worked out by hand; weights that undo a selection, against all N-tuples of a small distribution."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

from tests.agents.learning.advantages.forests import by_turn, flat
from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.learning.advantages import tspo
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.lessons.credit import (
    first_occurrence,
    format_penalty,
    inclusion_probability,
    length_penalty,
    normalise,
    potential_differences,
    selection_weights,
    shows_answer,
    undo_selection,
)


def turn(observation="", reward=0.0, *, tokens=1, score=0.0, valid=True):
    return Turn((1,), (2,) * tokens, (-1.0,) * tokens, reward, valid, 1, score=score, observation=observation)


def trajectory(*turns, success=False, finished=True):
    return Trajectory(turns, success, 0.0, "naive", finished=finished)


def rewards(group):
    return [[turn.reward for turn in one.turns] for one in group.trajectories]


# The answer is Paul Walker; found at turns 0 and 2, at turn 1, and never.
SEARCHES = (
    trajectory(turn("Paul Walker was an actor."), turn("nothing"), turn("the Paul Walker (2001)"), turn(reward=-1.0)),
    trajectory(turn("a walker"), turn("by PAUL  WALKER, USA"), turn("")),
    trajectory(turn("Paula Walkers"), turn("")),
)
FAILED = Group(7, SEARCHES)
ANSWER = ("Paul Walker",)


def test_turns_up_to_the_first_that_found_the_answer_are_rewarded():
    actual = first_occurrence(FAILED, ANSWER)
    assert rewards(actual) == [[0.5, 0, 0, 0], [0.5, 0.5, 0], [0, 0]]
    assert actual.task == 7
    assert rewards(first_occurrence(FAILED, ANSWER, alpha=0.1))[0] == [0.1, 0, 0, 0]


def test_a_group_with_a_success_is_left_alone_and_answers_may_differ_by_group():
    mixed = Group(7, (trajectory(turn("x"), turn("", 1.0), success=True), *SEARCHES))
    assert first_occurrence(mixed, ANSWER) is mixed
    assert rewards(first_occurrence(mixed, ANSWER, groups="all"))[:2] == [[1, 1], [0.5, 0, 0, 0]]
    golds = {7: ("Paul Walker",), 8: ("nothing",)}
    rule = partial(first_occurrence, golds=lambda group: golds[group.task])
    assert rewards(rule(FAILED))[0] == [0.5, 0, 0, 0]
    assert rewards(rule(Group(8, SEARCHES)))[0] == [0.5, 0.5, 0, 0]


def test_evidence_can_be_something_else_than_text_and_golden_answers_are_required():
    scored = Group(0, (trajectory(turn(3), turn(4, score=1.0), turn(5)), trajectory(turn(3))))
    assert rewards(first_occurrence(scored, evidence=lambda turn: turn.score > 0)) == [[0.5, 0.5, 0], [0]]
    with pytest.raises(ValueError, match="evidence="):
        first_occurrence(scored, ANSWER)
    group = Group(7, (trajectory(turn(), turn(score=1.0), turn()), trajectory(turn())))
    assert rewards(first_occurrence(group, evidence="score", alpha=0.25)) == [[0.25, 0.25, 0.0], [0.0]]
    with pytest.raises(ValueError, match="golden answers"):
        first_occurrence(FAILED)


@pytest.mark.parametrize(
    ("observation", "gold", "boundary", "substring"),
    [
        ("The Beatles' album", "beatles", True, True),
        ("Beatlesque", "Beatles", False, True),
        ("in New York City", "new york", True, True),
        ("in New-York", "new york", False, False),
        ("nothing known", "no", False, True),
        ("no", "No.", False, True),
        ("yes indeed", "yes", False, True),
        ("7 of 9", "7", False, True),
        ("17 of 9", "17", True, True),
        ("a man and the gun", "man and gun", True, True),
        ("anything", "the", False, True),
    ],
)
def test_answers_are_matched_as_whole_words_or_as_any_part(observation, gold, boundary, substring):
    assert shows_answer(turn(observation), (gold,)) is boundary
    assert shows_answer(turn(observation), (gold,), match="substring") is substring
    # Texts are normalised as SQuAD does.
    assert normalise("  An  Apple, a pear: THE end! ") == "apple pear end"


@pytest.mark.parametrize("alpha", [0.0, -0.5, 1.5])
def test_evidence_is_worth_a_share_of_a_success(alpha):
    with pytest.raises(ValueError, match="alpha > 0 and <= 1"):
        first_occurrence(FAILED, ANSWER, alpha=alpha)


def test_golden_answers_of_the_environment_are_looked_for_where_none_are_named():
    given = tuple(
        replace(one, turns=tuple(replace(turn, golden_answers=("Paul Walker",)) for turn in one.turns))
        for one in FAILED.trajectories
    )
    actual = first_occurrence(replace(FAILED, trajectories=given))
    assert rewards(actual) == rewards(first_occurrence(FAILED, ("Paul Walker",)))
    assert any(map(any, rewards(actual)))
    # What is named goes first.
    assert not any(map(any, rewards(first_occurrence(replace(FAILED, trajectories=given), ("nobody",)))))


def test_in_a_group_that_only_failed_alpha_does_not_matter_to_scaled_advantages():
    # Turn 0: 1, 1, 0 of alpha: mean 2/3, deviation 1/sqrt 3. Turn 1: 0, 1, 0. Turns 2 and 3: nothing.
    third = (1 / 3) * 3**0.5
    for alpha in (0.1, 0.5, 1.0):
        batch = collate([first_occurrence(FAILED, ANSWER, alpha=alpha)])
        expected = [third, -third, 0, 0, third, 2 * third, 0, -2 * third, -third]
        assert flat(by_turn(batch, tspo(batch))) == pytest.approx(expected, abs=1e-4)


def test_a_turn_is_rewarded_by_how_much_it_raised_its_potential():
    group = Group(0, (trajectory(turn(reward=1.0, score=2.0), turn(score=5.0), turn(score=4.0)),))
    # From 1: 1, 3, and the end is worth 0.
    assert rewards(potential_differences(group, start=1.0)) == [[2.0, 3.0, -5.0]]
    assert rewards(potential_differences(group, start=1.0, at_end="score")) == [[2.0, 3.0, -1.0]]
    assert rewards(potential_differences(group, start=1.0, rewards="replace", weight=2.0)) == [[2.0, 6.0, -10.0]]
    # gamma 1/2: 0.5 * 2 - 1, 0.5 * 5 - 2, 0 - 5.
    assert rewards(potential_differences(group, start=1.0, gamma=0.5, rewards="replace")) == [[0.0, 0.5, -5.0]]
    group = Group(3, (trajectory(turn(score=2.0), finished=False), trajectory(finished=False)))
    assert rewards(potential_differences(group, start=lambda group: group.task - 2.0)) == [[1.0], []]
    group = Group(0, (trajectory(turn("ab"), turn("abcd"), finished=False),))
    assert rewards(potential_differences(group, potential=lambda turn: len(turn.observation))) == [[2, 2]]


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_along_a_finished_episode_differences_sum_to_minus_the_starts_potential(gamma):
    for scores in ([3.0, -1.0, 2.0], [0.5], [7.0, 7.0]):
        group = Group(0, (trajectory(*[turn(score=score) for score in scores]),))
        (gains,) = rewards(potential_differences(group, start=1.5, gamma=gamma))
        assert sum(gamma**number * gain for number, gain in enumerate(gains)) == pytest.approx(-1.5)


def test_turns_without_the_form_and_with_too_many_tokens_pay():
    group = Group(0, (trajectory(turn(reward=1.0), turn(reward=1.0, valid=False)), trajectory(turn(valid=False))))
    assert rewards(format_penalty(group)) == [[1.0, 0.9], [-0.1]]
    assert rewards(format_penalty(group, penalty=0.5)) == [[1.0, 0.5], [-0.5]]
    # Allowed are 10, free are 6.
    lengths = (1, 6, 7, 9, 10, 11)
    group = Group(0, (trajectory(*[turn(reward=1.0, tokens=tokens) for tokens in lengths]),))
    assert rewards(length_penalty(group, max_tokens=10, cache=4)) == [[1, 1, 0.75, 0.25, 0, 0]]
    assert rewards(length_penalty(group, max_tokens=10, cache=4, weight=2.0))[0][2] == 0.5
    group = Group(0, (trajectory(turn(tokens=5), turn(tokens=3)), trajectory(turn(tokens=5)), trajectory()))
    assert rewards(length_penalty(group, max_tokens=10, cache=4, per="trajectory")) == [[0, -0.5], [0], []]


@pytest.mark.parametrize("cache", [0, 11])
def test_the_cache_lies_within_what_is_allowed(cache):
    with pytest.raises(ValueError, match=r"wanted (cache|max_tokens) as a whole number"):
        length_penalty(FAILED, max_tokens=10, cache=cache)


def test_what_best_of_n_kept_counts_by_how_likely_it_was_to_be_kept():
    best = [replace(trajectory(turn(reward=value)), selected_by="best_of_n") for value in (3.0, 1.0)]
    plain = [trajectory(turn(reward=value)) for value in (0.0, 1.0, 2.0)]
    group = undo_selection(Group(7, (*best, *plain)), samples=4, kept=2, most=5.0)
    # Among the three and itself: 3.0 is the one best, 1.0 one of two equals below one better.
    chances = [inclusion_probability(0.0, 0.25, samples=4, kept=2), inclusion_probability(0.25, 0.5, samples=4, kept=2)]
    wanted = [min(5.0, 2 / (4 * chance)) for chance in chances]
    assert [one.counts for one in group.trajectories] == pytest.approx([*wanted, 1.0, 1.0, 1.0])
    assert rewards(group) == [[3.0], [1.0], [0.0], [1.0], [2.0]]
    with pytest.raises(ValueError, match="set naive >= 1"):
        undo_selection(Group(7, tuple(best)), samples=4, kept=2)


# Four things a policy may do, two of them worth the same.
LOGITS = torch.tensor([0.4, -0.3, 0.9, 0.1], dtype=torch.float64)
RETURNS = torch.tensor([0.0, 1.0, 1.0, 2.0], dtype=torch.float64)


def shares(logits=LOGITS):
    return torch.softmax(logits, dim=0)


def scores():
    """Return the gradient of each choice's log-probability, `[4, 4]`."""
    return torch.eye(4, dtype=torch.float64) - shares()


def tuples(samples):
    """Yield every way to sample, as choices, and how likely it is."""
    for choices in product(range(4), repeat=samples):
        yield choices, shares()[list(choices)].prod().item()


def chances_of_being_kept(choices, kept):
    """Return for each place of a tuple how likely it is among the best, over all ways to break ties."""
    returns = [RETURNS[choice].item() for choice in choices]
    bar = sorted(returns, reverse=True)[kept - 1]
    above = sum(value > bar for value in returns)
    tied = sum(value == bar for value in returns)
    return [1.0 if value > bar else (kept - above) / tied if value == bar else 0.0 for value in returns]


def better_and_equal(choice):
    value = RETURNS[choice].item()
    better, equal = torch.gt(RETURNS, value), torch.eq(RETURNS, value)
    return shares()[better].sum().item(), shares()[equal].sum().item()


SIZES = [(1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (4, 3), (3, 3)]


@pytest.mark.parametrize(("samples", "kept"), SIZES)
def test_the_probability_of_being_kept_is_the_share_of_all_tuples(samples, kept):
    for choice in range(4):
        weight, keeps = 0.0, 0.0
        for choices, chance in tuples(samples):
            if choices[0] == choice:
                weight += chance
                keeps += chance * chances_of_being_kept(choices, kept)[0]
        actual = inclusion_probability(*better_and_equal(choice), samples=samples, kept=kept)
        assert actual == pytest.approx(keeps / weight)


def test_estimated_weights_approach_the_exact_ones_and_are_bounded():
    plain = RETURNS[np.random.default_rng(0).choice(4, size=4000, p=shares().numpy())].tolist()
    actual = selection_weights([2.0, 1.0], plain, samples=4, kept=2)
    exact = [2 / (4 * inclusion_probability(*better_and_equal(choice), samples=4, kept=2)) for choice in (3, 1)]
    assert actual == pytest.approx(exact, rel=0.03)
    # One plain trajectory that was worse, the kept one itself being the other: half is equal, nothing better.
    half = 1 / (2 * inclusion_probability(0.0, 0.5, samples=2, kept=1))
    assert selection_weights([2.0], [0.0], samples=2, kept=1) == pytest.approx([half])
    assert selection_weights([0.0], [1.0] * 99, samples=8, kept=1) == [10.0]
    assert selection_weights([0.0], [1.0] * 99, samples=8, kept=1, most=3.0) == [3.0]


@pytest.mark.parametrize(
    ("better", "equal", "samples", "kept"), [(0.5, 0.6, 4, 2), (-0.1, 0.2, 4, 2), (0.1, 0.2, 4, 5), (0.1, 0.2, 4, 0)]
)
def test_probabilities_that_are_none_are_refused(better, equal, samples, kept):
    with pytest.raises(ValueError, match="wanted 1 <= kept <= samples"):
        inclusion_probability(better, equal, samples=samples, kept=kept)


def test_returns_that_differ_by_rounding_have_the_same_weight():
    """0.1 + 0.2 is not 0.3 in floating point; taken for better, it would make a kept 0.3 ten times as rare."""
    plain = [0.1 + 0.2] * 7
    first, other = (selection_weights([value], plain, samples=8, kept=1) for value in (0.3, 0.1 + 0.2))
    assert first == other == [pytest.approx(1.0)]
    # Distances that mean something still count.
    assert selection_weights([0.3 - 1e-6], plain, samples=8, kept=1) == [10.0]
