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
    SHORTLY,
    SLOW_FAMILIES,
    SLOW_IDS,
    family,
    is_old_atari,
    newest_ids,
    random_stack,
    single_wrappers,
)
from tsr_gym import CheckFailed, Snapshot, env_support, replayable, restore, snapshot
from tsr_gym.testing import check_snapshot
from tsr_gym.testing.facts import returned

pytestmark = pytest.mark.filterwarnings("ignore")


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full")
        metafunc.parametrize("case", single_wrappers(full), ids=str)


@pytest.mark.parametrize("env_id", newest_ids())
def test_every_id_is_exact_or_refused(env_id, outcome, request):
    full = request.config.getoption("--full")
    group = "earlier Atari ids" if is_old_atari(env_id) else family(env_id)
    try:
        env = gym.make(env_id)
    except (gym.error.Error, ImportError) as error:
        assert env_id in NOT_GYMNASIUMS
        outcome(group, env_id, "not built", str(error))
        return
    if env_id in REPRESENTATIVES or (family(env_id) not in SLOW_FAMILIES and env_id not in SLOW_IDS):
        check(outcome, group, env_id, env)
    elif is_old_atari(env_id) and not full:
        expect_continuation(outcome, group, env_id, env)
    else:
        check(outcome, group, env_id, env, **SHORTLY)


def test_every_wrapper_is_exact_or_refused(case, outcome):
    try:
        expect_fit(*case)
    except DoesNotFit as error:
        outcome("one wrapper", str(case), "does not fit", str(error))
        return
    check_stack(outcome, "one wrapper", case)


@pytest.mark.parametrize("seed", range(NUM_STACKS))
def test_every_random_stack_is_exact_or_refused(seed, outcome):
    check_stack(outcome, "three wrappers", random_stack(seed))


def expect_continuation(outcome, group, env_id, env):
    """Restore a game once: under its earlier names it has other defaults than under ALE/, where it is checked."""
    support = env_support(env)
    env = replayable(env) if support.level == "replay" else env
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(8)]
    for action in actions[:4]:
        env.step(action)
    snap = Snapshot.from_bytes(snapshot(env).to_bytes())
    went_on = [returned(env, env.step(action)) for action in actions[4:]]
    restore(env, snap)
    again = [returned(env, env.step(action)) for action in actions[4:]]
    outcome(group, env_id, support.level if again == went_on else "inexact", support.reason)
    assert again == went_on


def check_stack(outcome, group, case):
    check(outcome, group, str(case), make(*case), factory=lambda: make(*case), **SHORTLY)


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
