"""Environments that cannot be copied: a restore resets and takes the recorded actions again.

Every result of the replay is compared with the one on record, so that a restore is exact or says where it was not.
"""

from typing import Any

from tsr_gym.classes import packages_of
from tsr_gym.errors import SnapshotError, shown
from tsr_gym.foreign import generators, play
from tsr_gym.foreign.fresh import can_remake, fresh, remake
from tsr_gym.foreign.noise import dice_of, place_dice, place_generator, replace_keys
from tsr_gym.foreign.portable import imported
from tsr_gym.foreign.recorder import (
    Move,
    PortableReplay,
    Rendering,
    ReplayRecorder,
    ReplayState,
    Reseeding,
    Start,
    fingerprint,
    position_in,
)
from tsr_gym.foreign.repetition import repetition_of
from tsr_gym.foreign.settings import compare, settings_of
from tsr_gym.foreign.support import Support
from tsr_gym.foreign.thawed import Thawer, try_to_thaw
from tsr_gym.random_stream import Drawn, position_of

_HOW = "a restore resets and takes the recorded actions again, and compares every result with the one on record"


class _Diverged(SnapshotError):
    """A replay went another way than the record."""


class ReplayAdapter:
    """Reads environments under a `ReplayRecorder`."""

    def support(self, env: Any) -> Support:
        """Return replay unless others of the kind did not repeat themselves."""
        if isinstance(env, ReplayRecorder) and env.gap is not None:
            return Support("none", env.gap)
        found = repetition_of(env.env if isinstance(env, ReplayRecorder) else env)
        if found.flaw is not None:
            return Support("none", found.flaw)
        how = f"{_HOW}; it is made anew before every reset, because episodes leave traces" if found.remade else _HOW
        return Support("replay", how)

    def read(self, env: ReplayRecorder) -> ReplayState:
        """Return the record so far."""
        support = self.support(env)
        if support.level != "replay":
            raise SnapshotError(support.reason)
        if env.start is None:
            raise SnapshotError(
                f"nothing is on record of {type(env.env).__name__}: call tsr_gym.replayable(env) first and reset() then"
            )
        return ReplayState(settings_of(env.env), env.start, env.events, env.num_events, position_in(env.env))

    def check(self, env: ReplayRecorder, state: Any, seed: int | None) -> ReplayState:
        """Return the record if it fits."""
        if isinstance(state, PortableReplay):
            state = _imported(env.env, state)
        if not isinstance(state, ReplayState):
            raise SnapshotError(f"wanted a record of {type(env.env).__name__}, got {shown(state)}: damaged")
        compare(env.env, state.settings)
        return state

    def write(self, env: ReplayRecorder, state: ReplayState, seed: int | None) -> None:
        """Reset and replay.

        Raises:
            SnapshotError: A result was not the one on record; the environment must be reset then.
        """
        env.start = None
        try:
            stands = _replay(env.env, state, state.start.remade)
        except _Diverged:
            if state.start.remade or not can_remake(env.env):
                raise
            # The record may have begun in an environment that was new.
            stands = _replay(env.env, state, True)
        env.start, env.events, env.num_events = state.start, state.events, state.num_events
        env.stands, env.gap = stands, None
        if seed is not None:
            _reseed(env.env, seed)
            env.record(Reseeding(seed))
            env.stands = position_in(env.env)

    def copy(self, env: ReplayRecorder) -> Any:
        """Return another environment of the same settings under a recorder."""
        return ReplayRecorder(fresh(env.env))


def _imported(base: Any, state: PortableReplay) -> ReplayState:
    packages = packages_of(type(base))
    start, events = imported(state.start, packages), [imported(event, packages) for event in state.events]
    if not isinstance(start, Start) or not all(isinstance(event, Move | Rendering | Reseeding) for event in events):
        raise SnapshotError(f"wanted a record of {type(base).__name__}, got something else: damaged")
    actions = {f"action {number}": event.action for number, event in enumerate(events) if isinstance(event, Move)}
    try_to_thaw({"options": start.options, **actions})
    return ReplayState(state.settings, start, events, len(events), state.position)


def _replay(base: Any, state: ReplayState, remade: bool) -> Drawn | None:
    """Repeat an episode, and return where its last event left the generator."""
    start = state.start
    if remade:
        remake(base)
    if start.dice is not None:
        if len(dice_of(base).others) != len(start.dice.others):
            # Some generators are there only after a reset.
            play.reset(base, 0, None)
        place_dice(base, start.dice)
    _compare(base, "reset()", start.result, play.reset(base, start.seed, Thawer({}).thawed(start.options)))
    num_steps = 0
    for event in state.events[: state.num_events]:
        if isinstance(event, Reseeding):
            _reseed(base, event.seed)
            continue
        num_steps += isinstance(event, Move)
        if event.position is not None:
            place_generator(base, event.position, None)
        if isinstance(event, Move):
            came = play.step(base, Thawer({}).thawed(event.action))
            _compare(base, f"step {num_steps}", event.result, came)
        else:
            _render(base, event, num_steps)
    stands = position_in(base)
    if stands != state.position:
        # A wrapper drew after the last event.
        place_generator(base, state.position, None)
    return stands


def _render(base: Any, event: Rendering, num_steps: int) -> None:
    """Render as on record; under another mode the pictures are not to be compared, and without one there are none."""
    if base.render_mode is None:
        return
    picture = base.render()
    if base.render_mode == event.mode:
        _compare(base, f"the picture after step {num_steps}", event.result, play.picture_fact(picture))


def _reseed(base: Any, seed: int) -> None:
    """Reseed the generators that an environment holds."""
    own = vars(base).get("_np_random")
    if own is not None:
        place_generator(base, position_of(own), seed)
    for number, other in enumerate(generators.held_by(base)):
        if other is not own:
            generators.reseed(other, seed, number)
    replace_keys(base, seed)


def _compare(base: Any, what: str, wanted: bytes, came: Any) -> None:
    if fingerprint((*came, position_in(base))) != wanted:
        raise _Diverged(_message(base, what))


def _message(base: Any, what: str) -> str:
    return (
        f"{type(base).__name__} did not repeat itself: {what} differs from the record, so something else than the seed "
        "and the actions decides. Reset it before you go on"
    )
