"""How many actions are left, counted by hand."""

import pytest

from tsr_gym_envs.settings import actions_within


@pytest.mark.parametrize(
    ("turns", "actions", "per_turn", "wanted"),
    [
        (3, 10, 2, 6),
        (3, 5, 2, 5),
        (3, 5, None, 5),
        (None, 5, 2, 5),
        (3, None, 2, 6),
        (3, None, None, None),
        (None, None, 2, None),
        # Without a turn there is no action, whatever a turn may hold.
        (0, 5, None, 0),
        (0, None, None, 0),
        (0, 5, 5, 0),
        (2, 0, 5, 0),
    ],
)
def test_the_tighter_limit_counts(turns, actions, per_turn, wanted):
    assert actions_within(turns, actions, per_turn) == wanted
