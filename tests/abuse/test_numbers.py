"""Numbers that are none, for counts, limits and scores: refused, and nothing has grown from them."""

from functools import partial
from math import inf, nan

import numpy as np

from tests.abuse.attacks import attacked, counted
from tests.agents.strategies.test_strategies import WRONG_COUNTS
from tests.agents.worlds import cycle, letters
from tsr_gym import Budget, ConfigError, NotFinite

NO_COUNTS = (-1, -(2**70), 0.5, 2.5, 1e9, nan, inf, -inf, True, "2", [2], np.float64(3), 1j)
NO_NUMBERS = (nan, inf, -inf, None, "1", [1.0], 10**400, np.float32("nan"), 1j)
COUNTS = [(strategy, name) for strategy, names in WRONG_COUNTS.items() for name in sorted(names)]
LIMITS = [(Budget, name) for name in ("env_steps", "model_calls", "sampled_tokens", "restores")]


def _counts(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        wrong, (part, name) = NO_COUNTS[rng.integers(len(NO_COUNTS))], (COUNTS + LIMITS)[rng.integers(len(COUNTS) + 4)]
        env, bound = letters({"a": 1.0}, turns=2), partial(part, **{name: wrong})
        attack = bound if part is Budget else partial(env.search, cycle("a"), bound)
        unchanged = partial(lambda tree: len(tree.nodes) == 1, env.tree)
        yield attacked(f"{name}={wrong!r}", lambda attack=attack: attack() is None, ConfigError, unchanged)


def test_counts_and_limits_that_are_no_numbers_are_refused(hold):
    counts = hold("counts", lambda count, seed: counted(_counts(count, seed)), 100)
    assert counts.refused == counts.tried


def _scores(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        wrong, place = NO_NUMBERS[rng.integers(len(NO_NUMBERS))], int(rng.integers(1, 6))
        strategy, env = list(WRONG_COUNTS)[rng.integers(len(WRONG_COUNTS))], letters({"a": 1.0, "b": 2.0}, turns=3)

        def attack(env=env, strategy=strategy, wrong=wrong, place=place):
            rater = lambda grown: [wrong if node == place else 0.0 for _, node in grown]  # noqa: E731
            return len(env.search(cycle("ab"), strategy, rater=rater).nodes) <= place

        yield attacked(f"{strategy.__name__}, {wrong!r} at node {place}", attack, NotFinite)


def test_scores_that_are_no_numbers_are_refused(hold):
    counts = hold("scores", lambda count, seed: counted(_scores(count, seed)), 50)
    assert counts.refused > 0
