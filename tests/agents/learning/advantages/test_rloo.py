"""RLOO and Dr. GRPO, worked out by hand."""

import pytest

from tests.agents.learning.advantages.forests import batch_of, by_trajectory, path
from tsr_gym.agents.learning.advantages import dr_grpo, rloo

GROUPS = [[1.0, 3.0], [0.0, 2.0, 4.0, 6.0], [5.0]]


def batch():
    return batch_of(*[[path((-1, worth - 1.0), (-1, 1.0)) for worth in group] for group in GROUPS])


def test_returns_less_their_mean():
    # Means 2 and 3; one alone has nothing to be compared with.
    assert by_trajectory(batch(), dr_grpo(batch())) == [-1, 1, -3, -1, 1, 3, 0]


def test_returns_less_the_mean_of_the_others():
    # 1 - 3 and 3 - 1; 0 - 12/3, 2 - 10/3, 4 - 8/3, 6 - 6/3.
    assert by_trajectory(batch(), rloo(batch())) == pytest.approx([-2, 2, -4, -4 / 3, 4 / 3, 4, 0])
