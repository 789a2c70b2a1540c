"""The logistic regression of success on one number."""

import numpy as np
import pytest

from tsr_gym.agents.episodes.logistic import fit_logistic


@pytest.mark.parametrize("seed", range(5))
def test_the_regression_is_where_its_objective_is_flat_and_nothing_near_is_better(seed):
    rng = np.random.default_rng(seed)
    x = rng.random(300)
    y = rng.random(300) < 1 / (1 + np.exp(-(4 * x - 1)))
    found = fit_logistic(zip(x.tolist(), y.tolist(), strict=True), ridge=0.5)

    def objective(intercept, slope):
        chance = 1 / (1 + np.exp(-(intercept + slope * x)))
        return np.log(np.where(y, chance, 1 - chance)).sum() - 0.25 * (intercept**2 + slope**2)

    best = objective(*found)
    for away in ((1e-3, 0), (-1e-3, 0), (0, 1e-3), (0, -1e-3), (1e-3, -1e-3)):
        assert objective(found.intercept + away[0], found.slope + away[1]) < best
    # The sum of all errors is what the ridge holds back.
    errors = y - found(x)
    assert errors.sum() == pytest.approx(0.5 * found.intercept, abs=1e-6)
    assert (errors * x).sum() == pytest.approx(0.5 * found.slope, abs=1e-6)


def test_the_regression_of_nothing_is_even_and_that_of_agreement_is_finite():
    assert fit_logistic([]) == (0.0, 0.0)
    sure = fit_logistic([(0.5, True)] * 10_000)
    assert 0.99 < sure(np.array([0.5]))[0] < 1
