"""Budget: counts that add up."""

from dataclasses import FrozenInstanceError, fields

import pytest

from tsr_gym import Budget

NAMES = [item.name for item in fields(Budget)]


def test_every_count_adds_up():
    one = Budget(**{name: number for number, name in enumerate(NAMES, start=1)})
    total = one + Budget(**dict.fromkeys(NAMES, 10))
    assert [vars_of(total)[name] for name in NAMES] == [number + 10 for number in range(1, len(NAMES) + 1)]


def vars_of(budget):
    return {name: getattr(budget, name) for name in NAMES}


def test_nothing_spent_is_neutral():
    one = Budget(env_steps=2, seconds=0.5)
    assert one + Budget() == one
    assert sum([one, one], Budget()).env_steps == 4


def test_seconds_do_not_make_budgets_differ():
    assert Budget(env_steps=1, seconds=1.0) == Budget(env_steps=1, seconds=2.0)
    assert Budget(env_steps=1) != Budget(env_steps=2)


def test_a_budget_never_changes():
    with pytest.raises(FrozenInstanceError):
        Budget().env_steps = 1


def test_the_difference_of_two_moments_is_what_was_spent_between_them():
    assert Budget(env_steps=5, restores=2) - Budget(env_steps=3) == Budget(env_steps=2, restores=2)


def test_a_limit_binds_only_where_it_is_not_zero():
    spent = Budget(env_steps=5, model_calls=100, seconds=2.0)
    assert not spent.reached(Budget())
    assert not spent.reached(Budget(env_steps=6))
    assert spent.reached(Budget(env_steps=5))
    assert spent.reached(Budget(env_steps=6, seconds=1.5))
