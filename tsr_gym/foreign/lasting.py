"""The attributes that environments of a kind always have: what a captured state that lacks one cannot be."""

from typing import Any

from tsr_gym.errors import SnapshotError
from tsr_gym.foreign import play
from tsr_gym.foreign.fresh import fresh
from tsr_gym.foreign.objects import attributes_of
from tsr_gym.foreign.verdicts import SharedVerdicts

_FOUND: SharedVerdicts[frozenset[str]] = SharedVerdicts()


def lasting_names(env: Any) -> frozenset[str]:
    """Return the attributes that another environment made alike has after a reset; none where none can be made."""
    return _FOUND.of(env, _names_of_another)


def _names_of_another(env: Any) -> frozenset[str]:
    # Not a copy, which would also hold what this environment got in the course of its episodes.
    with play.quietly():
        try:
            other = fresh(env, unseen=True)
        except SnapshotError:
            return frozenset()
        came = play.reset(other, 0, None)
    return frozenset() if isinstance(came, play.Raised) else frozenset(attributes_of(other))
