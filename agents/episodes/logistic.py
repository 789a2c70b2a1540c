"""Logistic: the chance of success as a function of one number, by regression."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Logistic(NamedTuple):
    """``P(success | x) = 1 / (1 + exp(-(intercept + slope x)))``."""

    intercept: float
    slope: float

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability at each x."""
        return np.asarray(1 / (1 + np.exp(-(self.intercept + self.slope * x))))


def fit_logistic(samples: Iterable[tuple[float, bool]], *, ridge: float = 1.0) -> Logistic:
    """Return the maximum of ``sum log P - ridge / 2 (intercept^2 + slope^2)``, by Newton's method.

    A ridge keeps it finite where all samples agree, and makes it 1/2 everywhere where there are none. Two parameters
    need no library.

    Args:
        samples: x, and whether it was a success.
        ridge: How strongly both parameters are held at 0.
    """
    data = np.array([(1.0, x, float(success)) for x, success in samples]).reshape(-1, 3)
    features, successes, found = data[:, :2], data[:, 2], np.zeros(2)
    for _ in range(50):
        chance = 1 / (1 + np.exp(-features @ found))
        gradient = features.T @ (successes - chance) - ridge * found
        curvature = (features * (chance * (1 - chance))[:, None]).T @ features + ridge * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        found = found + step
        if np.abs(step).max() < 1e-10:
            break
    return Logistic(float(found[0]), float(found[1]))
