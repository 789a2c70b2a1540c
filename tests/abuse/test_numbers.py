"""Numbers that are none, for counts, limits, scores, rewards and log-probabilities: refused, and nothing has grown."""

from functools import partial
from math import inf, nan

import numpy as np

from tests.abuse.attacks import attacked, counted
from tests.agents.strategies.test_strategies import WRONG_COUNTS
from tests.agents.worlds import cycle, letters
from tsr_gym import Budget, Candidate, ConfigError, NotFinite

NO_COUNTS = (-1, -(2**70), 0.5, 2.5, 1e9, nan, inf, -inf, True, "2", [2], np.float64(3), np.nan, 1j)
NO_NUMBERS = (nan, inf, -inf, None, "1", [1.0], 10**400, np.float32("nan"), 1j)
COUNTS = [(strategy, name) for strategy, names in WRONG_COUNTS.items() for name in sorted(names)]


def _counts(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        wrong = NO_COUNTS[rng.integers(len(NO_COUNTS))]
        env = letters({"a": 1.0}, turns=2)
        if rng.random() < 0.3:
            name = ("env_steps", "model_calls", "sampled_tokens", "restores")[rng.integers(4)]
            attack = partial(Budget, **{name: wrong})
        else:
            strategy, name = COUNTS[rng.integers(len(COUNTS))]
            attack = partial(env.search, cycle("a"), partial(strategy, **{name: wrong}))
        yield attacked(
            f"{name}={wrong!r}",
            lambda attack=attack: attack() is None,
            ConfigError,
            lambda env=env: len(env.tree.nodes) == 1,
        )


def test_counts_and_limits_that_are_no_numbers_are_refused(hold):
    counts = hold("counts", lambda count, seed: counted(_counts(count, seed)), 100)
    assert counts.refused == counts.tried


def _values(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        wrong, place = NO_NUMBERS[rng.integers(len(NO_NUMBERS))], int(rng.integers(1, 6))
        strategy = list(WRONG_COUNTS)[rng.integers(len(WRONG_COUNTS))]
        env = letters({"a": 1.0, "b": 2.0}, turns=3)

        def rater(grown, wrong=wrong, place=place):
            return [wrong if node == place else 0.0 for _, node in grown]

        def policy(requests, place=place):
            rows = cycle("ab")(requests)
            logprobs = [nan] if place == 1 else [-0.5]
            return [[Candidate(answer.text, (1,), (2, 3), logprobs) for answer in row] for row in rows]

        if rng.random() < 0.7:
            attack, promised = partial(env.search, cycle("ab"), strategy, rater=rater), NotFinite
        else:
            attack, promised = partial(env.search, policy, strategy), ValueError
        yield attacked(
            f"{strategy.__name__}, {wrong!r} at node {place}",
            lambda attack=attack, place=place, env=env: attack() is not None and len(env.tree.nodes) <= place,
            promised,
        )


def test_scores_and_log_probabilities_that_are_no_numbers_are_refused(hold):
    counts = hold("scores", lambda count, seed: counted(_values(count, seed)), 50)
    assert counts.refused > 0
