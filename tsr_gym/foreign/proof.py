"""The proof by play that an environment can be copied: it plays copies, never the environment itself.

Two copies take the same sampled actions and must return the same, stand alike afterwards, and leave the environment as
it was; and a copy that has played and is put back must play the same again.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tsr_gym.foreign import play
from tsr_gym.foreign.frozen import Uncopyable
from tsr_gym.foreign.objects import attributes_of, frees
from tsr_gym.foreign.thawed import same


class Means(NamedTuple):
    """How environments of a kind are read, put back and copied."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    copy: Callable[[Any], Any]


def flaw_of(env: Any, means: Means) -> str | None:
    """Return why an environment cannot be copied exactly, None where copies were seen to play alike."""
    name = type(env).__name__
    if frees(type(env)):
        return f"{name} frees something when it is deleted (__del__), so a copy of it would too"
    try:
        start = means.read(env)
        with play.quietly() as drawn:
            flaw = _flaw_of_copies(env, start, means)
        changed = changed_between(start, means.read(env))
    except Uncopyable as error:
        return str(error)
    if drawn.names:
        return f"{name} draws from the global generator of {' and '.join(drawn.names)}, which is no part of it"
    if changed:
        flaw = f"what a copy did changed the original ({changed}), which should be reset before it goes on"
    return None if flaw is None else f"copies of {name} do not play alike: {flaw}"


def changed_between(one: Any, other: Any) -> str:
    """Return the attributes that differ between two captures, in words."""
    names = one.attributes.keys() | other.attributes.keys()
    return ", ".join(
        sorted(
            name
            for name in names
            if name not in one.attributes
            or name not in other.attributes
            or not same(one.attributes[name], other.attributes[name])
        )
    )


def _flaw_of_copies(env: Any, start: Any, means: Means) -> str | None:
    one, other = means.copy(env), means.copy(env)
    spaces = play.positions_of_spaces(one)
    last: Any = None
    moved = False
    seeded = attributes_of(env).get("_np_random") is not None
    for seed in range(play.NUM_SEQUENCES):
        # Where the episode has ended, or may not have begun, only a reset leads on.
        for fresh in (False, True) if seeded else (True,):
            came = _play(one, start, seed, fresh, means)
            if not same(spaces, play.positions_of_spaces(one)):
                return "it draws from the generator of its own space, which belongs to whoever samples actions"
            flaw = play.difference(came, _play(other, start, seed, fresh, means))
            if flaw is None and (changed := changed_between(means.read(one), means.read(other))):
                flaw = f"they differ in {changed} afterwards"
            flaw = flaw or play.difference(came, _play(one, start, seed, fresh, means))
            if flaw is not None:
                return flaw
            last = came[-2]
            if not isinstance(came[int(fresh)], play.Raised):
                moved = True
                break
    return None if moved else f"none of the sampled actions could be taken: {last}"


def _play(twin: Any, start: Any, seed: int, fresh: bool, means: Means) -> list[Any]:
    means.write(twin, start)
    first = [play.reset(twin, seed, None)] if fresh else []
    return [*first, *play.steps(twin, play.actions_of(twin, seed)), play.standing(twin)]
