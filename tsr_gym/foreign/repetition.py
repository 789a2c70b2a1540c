"""Whether environments of a kind repeat themselves after a reset with the same seed: played on others of the kind."""

from contextlib import suppress
from typing import Any, NamedTuple

from tsr_gym.errors import SnapshotError
from tsr_gym.foreign import play
from tsr_gym.foreign.attributes import twin_of
from tsr_gym.foreign.differences import Fact, difference
from tsr_gym.foreign.fresh import can_remake, fresh, remake
from tsr_gym.foreign.objects import frees, module_of
from tsr_gym.foreign.verdicts import SharedVerdicts

# Known to depend on their earlier episodes, too rarely to be seen in a short play: their physics is not made anew.
_DEPENDS_ON_EARLIER = frozenset({"gymnasium.envs.box2d.bipedal_walker:BipedalWalker"})
_NUM_STEPS = 16


class Repetition(NamedTuple):
    """Whether an environment repeats itself.

    Attributes:
        flaw: Why it does not, None where nothing speaks against it.
        remade: Whether it does only when it is made again before every reset.
    """

    flaw: str | None
    remade: bool = False


_FOUND: SharedVerdicts[Repetition] = SharedVerdicts()


def repetition_of(env: Any) -> Repetition:
    """Return whether an environment without wrappers repeats itself; others of its kind are played, once."""
    return _FOUND.of(env, _found)


def _found(env: Any) -> Repetition:
    one, other = _another(env), _another(env)
    if one is None or other is None:
        # Only this one is there, and it is not ours to play with; every restore is compared anyway.
        return Repetition(None)
    with play.quietly() as drawn:
        try:
            found = _compared(env, one, other)
        finally:
            one.close()
            other.close()
    if drawn.names:
        who = " and ".join(drawn.names)
        return Repetition(f"{type(env).__name__} draws from the global generator of {who}, which no seed decides")
    return found


def _another(env: Any) -> Any:
    """Return another environment to play with: made in the same way, copied, or at least of the same class."""
    with suppress(SnapshotError):
        return fresh(env, unseen=True)
    if not frees(type(env)):
        with suppress(SnapshotError):
            return twin_of(env, unseen=True)
    # A constructor that needs arguments, or has other reasons to refuse.
    with suppress(Exception):
        return type(env)()
    return None


def _compared(env: Any, one: Any, other: Any) -> Repetition:
    wanted = _play(other, 1)
    _play(one, 0)
    flaw = difference(wanted, _play(one, 1)) or difference(wanted, _play(one, 1))
    known = {f"{module_of(cls)}:{cls.__qualname__}" for cls in type(env).__mro__} & _DEPENDS_ON_EARLIER
    if (flaw is None and not known) or not can_remake(env):
        return Repetition(None if flaw is None else f"{type(env).__name__} does not repeat itself: {flaw}")
    remake(one)
    still = difference(wanted, _play(one, 1))
    if still is not None:
        return Repetition(f"{type(env).__name__} does not repeat itself, even if it is made anew: {still}")
    return Repetition(None, remade=True)


def _play(env: Any, seed: int) -> list[Fact]:
    actions = play.actions_of(env, seed, _NUM_STEPS)
    return [*play.facts([play.reset(env, seed, None), *play.steps(env, actions)])]
