"""Snapshots of Gymnasium's own environments and wrappers, and of ale-py's games: exact, or refused with the reason.

Run by `make test-gym-zoo`. A refusal must be a clean CheckFailed("unsupported"); an inexact stack, or any other
error, fails.
"""

import warnings

import gymnasium as gym
import pytest

from tests.zoo.wrappers import DoesNotFit, expect_fit, make
from tests.zoo.zoo import (
    NOT_GYMNASIUMS,
    NUM_STACKS,
    REPRESENTATIVES,
    SLOW_FAMILIES,
    SLOW_IDS,
    family,
    is_old_atari,
    newest_ids,
    random_stack,
    settings,
    single_wrappers,
)
from tsr_gym import CheckFailed, env_support
from tsr_gym.testing import check_snapshot

pytestmark = pytest.mark.filterwarnings("ignore")


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full")
        metafunc.parametrize("case", single_wrappers(full), ids=str)


@pytest.mark.parametrize("env_id", newest_ids())
def test_every_id_is_exact_or_refused(env_id, outcome):
    group = "earlier Atari ids" if is_old_atari(env_id) else family(env_id)
    try:
        env = gym.make(env_id)
    except (gym.error.Error, ImportError) as error:
        assert env_id in NOT_GYMNASIUMS
        outcome(group, env_id, "not built", str(error))
        return
    if env_id in REPRESENTATIVES or (family(env_id) not in SLOW_FAMILIES and env_id not in SLOW_IDS):
        check(outcome, group, env_id, env)
    elif is_old_atari(env_id):
        # The same games as under ALE/, with other defaults.
        check(outcome, group, env_id, env, steps=2, seeds=(0,), other_processes=False)
    else:
        check(outcome, group, env_id, env, steps=8, seeds=(0,), other_processes=False)


def test_every_wrapper_is_exact_or_refused(case, outcome):
    check_stack(outcome, "one wrapper", case)


@pytest.mark.parametrize("seed", range(NUM_STACKS))
def test_every_random_stack_is_exact_or_refused(seed, outcome):
    check_stack(outcome, "three wrappers", random_stack(seed))


def check_stack(outcome, group, case):
    try:
        expect_fit(*case)
    except DoesNotFit as error:
        outcome(group, str(case), "does not fit", str(error))
        return
    again = settings(case.env_id) | {"factory": lambda: make(*case), "other_processes": False}
    check(outcome, group, str(case), make(*case), **again)


def check(outcome, group, name, env, **how):
    """Check a stack and note what came of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env.reset(seed=0)
        support = env_support(env)
        try:
            check_snapshot(env, **how)
        except CheckFailed as error:
            if error.check != "unsupported":
                outcome(group, name, "inexact", str(error))
                raise
            outcome(group, name, "refused", str(error))
            if support.level != "none":
                raise
            return
    outcome(group, name, support.level, support.reason)
