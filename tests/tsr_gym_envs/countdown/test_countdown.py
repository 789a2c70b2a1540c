"""Countdown: rules against a naive twin, the solver against all plays, expressions, instances, the guide."""

from itertools import permutations, product

import gymnasium as gym
import numpy as np
import pytest

from tsr_gym import ConfigError
from tsr_gym.teaching import oracle_turn
from tsr_gym.testing import check_snapshot, check_text_env
from tsr_gym.wrappers import AnswerFormat, CountdownScore
from tsr_gym_envs.countdown import rules

NAME = "tsr/Countdown-v0"


def calculate(left, sign, right):
    """Return a result by fractions of Python's own operators, None if the rules forbid it."""
    if sign == "/" and right == 0:
        return None
    result = {"+": left + right, "-": left - right, "*": left * right, "/": left / max(right, 1)}[sign]
    return int(result) if result == int(result) and 0 <= result <= 199 else None


def plays(numbers):
    """Yield the numbers after every sequence of combinations, the empty one included, without any sharing."""
    yield tuple(numbers)
    for first, second in permutations(range(len(numbers)), 2):
        rest = [number for index, number in enumerate(numbers) if index not in (first, second)]
        for sign in "+-*/":
            result = calculate(numbers[first], sign, numbers[second])
            if result is not None:
                yield from plays([*rest, result])


def make(**settings):
    return gym.make(NAME, **settings).unwrapped


@pytest.mark.parametrize("seed", range(4))
def test_what_can_be_reached_is_what_all_plays_reach(seed):
    rng = np.random.default_rng(seed)
    numbers = tuple(sorted(map(int, rng.integers(0, 25, size=3 if seed else 4))))
    all_plays = set(plays(numbers))
    for target in range(200):
        fewest = min((len(numbers) - len(ends) for ends in all_plays if target in ends), default=None)
        assert rules.distance(numbers, target, False) == fewest
        is_reached = (target,) in all_plays
        assert rules.distance(numbers, target, True) == (len(numbers) - 1 if is_reached else None)
        for use_all in (True, False):
            text = rules.best_expression(numbers, target, use_all)
            assert (text is not None) == (is_reached if use_all else fewest is not None)
            # Python's own reading of an expression that the solver wrote.
            assert text is None or eval(text) == target == rules.evaluated(text, numbers, use_all)


def chance(env, state, turns):
    """Return the success of uniform random play, by play of every action in the environment's own rules."""
    if env.is_success(state) or not turns:
        return float(env.is_success(state))
    ends = [env.transition(state, action, None).state for action in env.legal_actions(state)]
    return sum(chance(env, end, turns - 1) for end in ends) / max(len(ends), 1)


@pytest.mark.parametrize(
    "settings", [{"num_numbers": 3}, {"num_numbers": 3, "use_all": False, "max_turns": 1}, {}], ids=str
)
def test_bars_dead_ends_and_best_turns_are_those_of_the_rules(settings):
    env = make(**settings)
    rng = np.random.default_rng(1)
    for seed in range(4):
        env.reset(seed=seed)
        turns = env.limits.max_turns
        random, best = env.success_bars(env.state)
        if len(env.state.numbers) == 3:
            assert random == pytest.approx(chance(env, env.state, turns))
        assert best == env.best_value(env.state, turns, None)
        while not env.episode.terminated and not env.episode.truncated:
            state, left = env.state, env.limits.max_turns - env.episode.turns
            worth = env.best_value(state, left, None)
            turn = env.optimal_turn(state, left, None)
            assert (turn is not None) == (worth == 1.0)
            assert (env.dead_end(state) is None) >= (worth == 1.0)
            if turn:
                assert env.best_value(env.transition(state, turn, None).state, left - 1, None) == 1.0
            after = [env.transition(state, action, None).state for action in env.legal_actions(state)]
            assert worth == max(env.best_value(end, left - 1, None) for end in after)
            env.step(turn if turn and rng.random() < 0.7 else env.legal_actions(state)[0])


def test_turns_take_numbers_away_and_mistakes_are_named():
    env = make()
    start = {"numbers": [8, 3, 5, 3], "target": 30}
    observation, _ = env.reset(seed=0, options=start)
    assert observation == "Numbers: 3 3 5 8\nTarget: 30"
    for text, reason in [
        ("8 + 9", "there are no 8 and 9 among 3 3 5 8"),
        ("5 + 5", "there are no 5 and 5"),
        ("5 / 3", "5 / 3 is no whole number"),
        ("3 - 5", "3 - 5 is no whole number"),
        ("(3 + 5)", "is no combination"),
        ("__import__('os')", "is no combination"),
        ("３ + 5", "is no combination"),
    ]:
        assert reason in env.step(text)[4]["invalid_reason"]
    env.reset(seed=0, options=start)
    assert env.step(" 3*5")[0] == "3 * 5 = 15\nNumbers: 3 8 15\nTarget: 30"
    assert env.step("8 - 3")[1:3] == (0.0, False)
    assert env.step("15 + 5")[1:3] == (0.0, True)
    env.reset(seed=0, options=start)
    assert env.dead_end(env.state) is None
    env.step("8 * 5")
    assert env.dead_end(env.state) == "no combinations reach the target"
    some = make(use_all=False)
    some.reset(seed=0, options={"numbers": [8, 3, 5, 3], "target": 24})
    assert some.step("8 * 3")[1:3] == (1.0, True)


HOSTILE = (
    "", "(" * 60, "(" * 13 + "3" + ")" * 13, "3+", "3 3", "9**9", "3//3", "1e9", "8 * 3 + x", "().__class__",
    "8 * (3 + 5", "8 * 3) + 5", "٣ + 5", "3 + 5 + 8 + 8", "8 3 5", "0008 + 3", "8 - 9 + 3", "5 / 3 * 8", "x" * 100_000,
    "8,3", "-3 + 5",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_expression_is_an_invalid_turn(text):
    env = make(single=True)
    env.reset(seed=0, options={"numbers": [3, 5, 8], "target": 24})
    before = env.state
    *_, terminated, _, info = env.step(text)
    assert (info["action_is_valid"], terminated, env.state) == (False, False, before)
    assert len(info["invalid_reason"]) < 200


def test_an_expression_is_one_turn():
    for text, use_all, reward in [
        ("(8-5)*3", True, 0.0), ("8 * (5 - 3) + 0", True, None), ("8*3", False, 1.0),
        ("8*3", True, None), ("5 * 8 - 16", False, None),
    ]:  # fmt: skip
        env = make(single=True, use_all=use_all)
        env.reset(seed=0, options={"numbers": [3, 5, 8], "target": 24})
        *_, info = result = env.step(text)
        assert info["action_is_valid"] is (reward is not None)
        assert result[1:3] == ((reward or 0.0), reward is not None)
    assert rules.evaluated("2 + 3 * 4 - 6 / 3", (2, 3, 3, 4, 6), True) == 12


def test_splits_share_no_instance_and_instances_are_solvable():
    keys = {}
    for split in ("train", "valid", "test"):
        env = make(split=split, num_numbers=3)
        seen = [(env.reset(seed=seed), env.state)[1] for seed in range(60)]
        keys[split] = {env.form(state) for state in seen}
        assert all(env.best_value(state, 8, None) == 1.0 and state.target not in state.numbers for state in seen)
    assert not keys["train"] & keys["test"] | keys["train"] & keys["valid"] | keys["valid"] & keys["test"]
    env = make()
    forms = set()
    for order in permutations((8, 3, 5, 3)):
        env.reset(seed=0, options={"numbers": list(order), "target": 30})
        forms.add(env.form(env.state))
    assert len(forms) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"num_numbers": 2},
        {"numbers": (0, 5)},
        {"targets": (1, 200)},
        {"split": "dev"},
        {"obs_type": "rgb"},
        {"max_turns": 0},
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(settings):
    with pytest.raises(ConfigError):
        make(**settings)


@pytest.mark.parametrize("options", [{"number": 3}, {"numbers": [1, 2], "target": 3}, {"numbers": [1, 2, 3]}], ids=str)
def test_instances_that_cannot_be_are_refused(options):
    with pytest.raises(ConfigError):
        make().reset(options=options)
    with pytest.raises(ConfigError, match="no instance of split"):
        make(numbers=(1, 1), targets=(90, 99)).reset(seed=0)


@pytest.mark.parametrize(
    "settings", [{"num_numbers": 6}, {"single": True}, {"use_all": False, "obs_type": "compact"}], ids=str
)
def test_every_form_keeps_the_contracts(settings):
    env = gym.make(NAME, **settings)
    check_text_env(env, seeds=(0,))
    check_snapshot(AnswerFormat(env), seeds=(0,), other_processes=False)


def test_the_guide_reads_what_is_shown_and_the_oracle_wins():
    env = CountdownScore(gym.make(NAME, num_numbers=3))
    env.reset(seed=0, options={"numbers": [3, 5, 8], "target": 24})
    closer = [env.step(turn)[4]["score"] for turn in ("8 - 5", "3 * 3")]
    # Of 3 and 3 no result is nearer to 24 than 9; then nothing is left.
    assert closer == [pytest.approx(-15 / 199), -1.0]
    env.reset(seed=0, options={"numbers": [3, 5, 8], "target": 24})
    assert env.rate_state(rules.CountdownState((3, 8), 24)) == 0.0
    assert env.rate_state(rules.CountdownState((24,), 24)) == 1.0
    for seed, single in product(range(5), (True, False)):
        env = make(single=single, num_numbers=5)
        env.reset(seed=seed)
        total = 0.0
        while not env.episode.terminated:
            total += env.step(oracle_turn(env, None))[1]
        assert total == 1.0
    teaching = make(num_numbers=3, obs_type="compact").teaching()
    assert {"0", "199"} <= {*teaching.symbols}
    assert make(single=True).teaching() is None
