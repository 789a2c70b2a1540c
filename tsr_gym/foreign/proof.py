"""The proof by play that an environment can be copied: it plays copies, never the environment itself.

Two copies, one of which has played another episode, are put where the environment stands, or where a reset leads. They
take the same sampled actions and must return the same, stand alike afterwards, and leave the environment as it was; and
a copy that has played and is put back must play the same again.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tsr_gym.foreign import play
from tsr_gym.foreign.differences import Fact, difference
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
        changed = difference(held(start), held(means.read(env)))
    except Uncopyable as error:
        return str(error)
    if drawn.names:
        return f"{name} draws from the global generator of {' and '.join(drawn.names)}, which is no part of it"
    if changed:
        flaw = f"what a copy did changed the original ({changed}), which should be reset before it goes on"
    return None if flaw is None else f"copies of {name} do not play alike: {flaw}"


def held(state: Any) -> list[Fact]:
    """Return the attributes of a capture as facts."""
    return [Fact(f"the attribute {name}", state.attributes[name]) for name in sorted(state.attributes)]


def _flaw_of_copies(env: Any, start: Any, means: Means) -> str | None:
    one, other = means.copy(env), means.copy(env)
    last: Any = None
    moved = False
    seeded = attributes_of(env).get("_np_random") is not None
    for seed in range(play.NUM_SEQUENCES):
        # Where the episode has ended, or may not have begun, only a reset leads on.
        for anew in (False, True) if seeded else (True,):
            origin = _after_reset(one, start, seed, means) if anew else start
            if isinstance(origin, play.Raised):
                last = origin
                continue
            last, flaw = _compared(one, other, origin, seed, means)
            if flaw is not None:
                return flaw
            if not isinstance(last, play.Raised):
                moved = True
                break
    return None if moved else f"none of the sampled actions could be taken: {last}"


def _after_reset(twin: Any, start: Any, seed: int, means: Means) -> Any:
    """Return where a copy stands after a reset, so that the proof is the same one before and after it."""
    means.write(twin, start)
    result = play.reset(twin, seed, None)
    return result if isinstance(result, play.Raised) else means.read(twin)


def _compared(one: Any, other: Any, origin: Any, seed: int, means: Means) -> tuple[Any, str | None]:
    """Return what the first step of a play brought, and how plays of two copies differ, None where they do not."""
    means.write(one, origin)
    spaces = play.positions_of_spaces(one)
    came = _play(one, origin, seed, means)
    if not same(spaces, play.positions_of_spaces(one)):
        return came[0], "it draws from the generator of its own space, which belongs to whoever samples actions"
    # What another episode leaves behind must not be seen in this one.
    play.reset(other, seed + play.NUM_SEQUENCES, None)
    play.steps(other, play.actions_of(other, seed + play.NUM_SEQUENCES))
    wanted = [*play.facts(came)]
    flaw = difference(wanted, play.facts(_play(other, origin, seed, means)))
    if flaw is None and (changed := difference(held(means.read(one)), held(means.read(other)))):
        flaw = f"afterwards, {changed}"
    return came[0], flaw or difference(wanted, play.facts(_play(one, origin, seed, means)))


def _play(twin: Any, origin: Any, seed: int, means: Means) -> list[Any]:
    means.write(twin, origin)
    return [*play.steps(twin, play.actions_of(twin, seed)), play.standing(twin)]
