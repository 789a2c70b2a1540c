"""Atari: the emulator's state, its random numbers, and the action that sticky games may repeat.

ALE's own `cloneState(include_rng=True)` leaves out the held action: with probability `repeat_action_probability` a
frame repeats the action of the frame before. From the first snapshot on, the adapter follows the held action by drawing
the emulator's random numbers again. In the middle of an episode that was not watched, it finds the action by trying all
of them.
"""

import struct
from collections import deque
from functools import lru_cache
from math import ceil, log
from typing import Any, NamedTuple

import numpy as np

from tsr_gym.errors import SnapshotError
from tsr_gym.foreign.attributes import AttributesState, capture, checked, put_back
from tsr_gym.foreign.objects import Support, fresh

_DRAWS_PER_FRAME = 2
_SIZE = 624
# The serialised state begins with a header; these bytes hold the length of the emulator's part. The text of the
# Mersenne twister is at the end of that part, after its own length of `_WIDTH` bytes.
_LENGTH = slice(24, 28)
_WIDTH = 4


class Twister(NamedTuple):
    """A Mersenne twister: its words as bytes, and the number of words that were used."""

    words: bytes
    used: int


def _text(state: bytes) -> slice:
    """Return the slice of the twister's text."""
    if len(state) > _LENGTH.stop:
        end = _LENGTH.stop + struct.unpack("<I", state[_LENGTH])[0]
        start = len(state[:end].rstrip(b"0123456789 "))
        if start > _LENGTH.stop and state[start - _WIDTH : start] == struct.pack("<I", end - start):
            return slice(start, end)
    raise SnapshotError(
        "this version of ale_py stores its random numbers in an unknown form: make the game with "
        "repeat_action_probability=0"
    )


def twister_of(state: bytes) -> Twister:
    """Return the twister of a serialised state.

    Raises:
        SnapshotError: It is not at the expected place.
    """
    numbers = np.array(state[_text(state)].split(), dtype=np.uint32)
    if len(numbers) not in (_SIZE, _SIZE + 1):
        raise SnapshotError(
            f"wanted {_SIZE} words of a Mersenne twister, got {len(numbers)}: another version of ale_py"
        )
    # Some C++ libraries write the words in the order in which they were last drawn, without a count.
    return Twister(numbers[:_SIZE].tobytes(), int(numbers[_SIZE]) if len(numbers) > _SIZE else _SIZE)


def with_twister(state: bytes, twister: Twister) -> bytes:
    """Return a serialised state with other random numbers.

    Raises:
        SnapshotError: The twister is not at the expected place.
    """
    where = _text(state)
    counted = len(state[where].split()) > _SIZE
    words = np.frombuffer(twister.words, np.uint32).tolist()
    text = b" ".join(b"%d" % word for word in ([*words, twister.used] if counted else words))
    (length,) = struct.unpack("<I", state[_LENGTH])
    grown = len(text) - (where.stop - where.start)
    head = state[: _LENGTH.start] + struct.pack("<I", length + grown) + state[_LENGTH.stop : where.start - _WIDTH]
    return head + struct.pack("<I", len(text)) + text + state[where.stop :]


def draws(twister: Twister, num_frames: int) -> tuple[np.ndarray[Any, Any], Twister]:
    """Return the random numbers of the next frames, one in [0, 1) per frame, and the twister after them.

    A frame repeats the held action if its number is below the repeat probability.
    """
    bits = np.random.MT19937(0)
    words = np.frombuffer(twister.words, np.uint32)
    bits.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": twister.used}}
    raw = bits.random_raw(_DRAWS_PER_FRAME * num_frames)
    return raw[::_DRAWS_PER_FRAME] / 2.0**32, _twister(bits)


def seeded(seed: int) -> Twister:
    """Return the twister that ALE makes from a seed of 32 bits."""
    bits = np.random.MT19937(0)
    bits._legacy_seeding(seed)
    return _twister(bits)


def _twister(bits: np.random.MT19937) -> Twister:
    state: Any = bits.state["state"]
    return Twister(state["key"].tobytes(), int(state["pos"]))


@lru_cache(maxsize=64)
def accepting(probability: float) -> Twister:
    """Return a twister whose first frame executes the given action."""
    return next(twister for twister in map(seeded, range(10**6)) if draws(twister, 1)[0][0] >= probability)


# A twister of zeros draws only zeros, so every frame repeats the held action.
REPEATING = Twister(bytes(4 * _SIZE), _SIZE)


WITHOUT = frozenset({"ale", "_action_set"})
NOOP = 0
_MAX_FRAMES = 4096
# The probability that an action found by trying differs from the held one and still matters.
_DOUBT = 1e-9
# The cartridge of Pitfall II counts fractions of clock cycles, which its saved state rounds. A snapshot therefore
# continues from the rounded state.
_ROUNDED = b"CartridgeDPC"
_MAX_ROUNDINGS = 100
# Games whose state ale_py 0.12 does not read back as it wrote it.
_UNREAD = {"miniature_golf": "ALE reads other flags than it wrote"}
# Games that draw over pictures of earlier frames, which ALE does not save. It shows if a step has at most this many
# frames.
_DRAWN_OVER = {"yars_revenge": 1, "video_checkers": 2, "tic_tac_toe_3d": 10**6}
# For this many frames after a reset, pictures show parts of the picture that the reset drew.
_FIRST_FRAMES = 1


class Held(NamedTuple):
    """The action that a sticky frame repeats, and the strength with which its paddle is turned."""

    action: int = NOOP
    strength: float = 1.0


class Emulator(NamedTuple):
    """An emulator's state, serialised with its random numbers."""

    state: bytes
    held: Held


class WatchedALE:
    """Wraps an emulator and records the actions of its last frames."""

    def __init__(self, ale: Any, held: Held, state: bytes) -> None:
        self.ale = ale
        self.mark(held, state)

    def __getattr__(self, name: str) -> Any:
        if name == "ale":
            raise AttributeError(name)
        return getattr(self.ale, name)

    def mark(self, held: Held, state: bytes) -> None:
        """Store the held action at a state, from which later frames are counted."""
        self.marked = held
        self.twister = twister_of(state)
        self.num_frames = 0
        self.frames: deque[Held] = deque(maxlen=_MAX_FRAMES)

    def act(self, action: Any, paddle_strength: float = 1.0) -> int:
        """Execute a frame."""
        number = action if isinstance(action, int) else action.value
        self.frames.append(Held(int(number), float(paddle_strength)))
        self.num_frames += 1
        reward: int = self.ale.act(action, paddle_strength)
        return reward

    def reset_game(self) -> None:
        """Start an episode; the held action is then NOOP."""
        self.ale.reset_game()
        self.mark(Held(), _serialised(self.ale))

    def held(self, state: bytes) -> Held | None:
        """Return the held action at the emulator's present state; None if the recorded frames do not lead to it.

        The random numbers of the recorded frames are drawn again: the held action is that of the last frame that did
        not repeat.
        """
        if not self.num_frames:
            return self.marked if self.twister == twister_of(state) else None
        numbers, after = draws(self.twister, self.num_frames)
        if after != twister_of(state):
            return None
        taken = np.flatnonzero(numbers >= stickiness(self.ale))
        if not taken.size:
            return self.marked
        # `frames` keeps only the last frames; a held action from before them is unknown.
        back = int(taken[-1]) - self.num_frames
        return self.frames[back] if -back <= len(self.frames) else None


class AtariAdapter:
    """Reads environments that inherit from `ale_py.env.AtariEnv`."""

    def support(self, env: Any) -> Support:
        """Return ``"exact"`` unless ALE does not save all of the game."""
        if env._game in _UNREAD:
            return Support("none", f"{env._game}: {_UNREAD[env._game]}")
        if env.sound_obs:
            return Support("none", f"{env._game}: the sound depends on earlier frames, which ALE does not save")
        frames = env._frameskip if isinstance(env._frameskip, tuple) else (env._frameskip,)
        if env._obs_type != "ram" and min(frames) <= _DRAWN_OVER.get(env._game, 0):
            return Support("none", f"{env._game}: a picture shows lines of earlier pictures, which ALE does not save")
        return Support("exact", "the emulator's state is saved, its random numbers and the held action included")

    def read(self, env: Any) -> AttributesState:
        """Return the emulator and the attributes."""
        support = self.support(env)
        if support.level != "exact":
            raise SnapshotError(f"{support.reason}: call tsr_gym.replayable(env) before reset()")
        ale = _emulator(env)
        state = _serialised(ale)
        if _ROUNDED in state:
            state = _settled(env, state)
        return capture(env, without=WITHOUT, native=Emulator(state, _held(env, state)))

    def check(self, env: Any, state: Any, seed: int | None) -> AttributesState:
        """Return the state if it fits the game."""
        made = checked(env, state, without=WITHOUT)
        emulator = made.native
        if not isinstance(emulator, Emulator):
            raise SnapshotError(f"wanted the state of an emulator, got {emulator!r}: damaged")
        _state_of(env, emulator.state)
        if stickiness(_emulator(env)):
            twister_of(emulator.state)
        return made

    def write(self, env: Any, state: AttributesState, seed: int | None) -> None:
        """Set the emulator and the attributes."""
        ale, emulator = _emulator(env), state.native
        serialised = emulator.state
        sticky = stickiness(ale)
        # New noise: only the twister inside the serialised state is replaced.
        if sticky and seed is not None:
            words = np.random.SeedSequence(seed).generate_state(1)
            serialised = with_twister(serialised, seeded(int(words[0])))
        target = _state_of(env, serialised)
        # The console's switches of the last frame are not part of the saved state, and after a reset they differ. So
        # the emulator first runs to an equal frame, and then reads the state.
        if target.getEpisodeFrameNumber() <= _FIRST_FRAMES:
            ale.reset_game()
            if target.getEpisodeFrameNumber():
                _hold(env, _serialised(ale), emulator.held)
        elif ale.getEpisodeFrameNumber() == 0 or (sticky and not _holds(env, emulator.held)):
            _hold(env, serialised, emulator.held)
        ale.restoreState(target)
        put_back(env, state, seed, without=WITHOUT)
        if sticky:
            _watch(env, emulator.held, serialised)

    def copy(self, env: Any) -> Any:
        """Return an environment of the same game."""
        return fresh(env)


def stickiness(ale: Any) -> float:
    """Return the probability that a frame repeats the action of the frame before."""
    return float(ale.getFloat("repeat_action_probability"))


def _emulator(env: Any) -> Any:
    return env.ale.ale if isinstance(env.ale, WatchedALE) else env.ale


def _serialised(ale: Any) -> bytes:
    serialised: bytes = ale.cloneState(include_rng=True).serialize()
    return serialised


def _state_of(env: Any, serialised: bytes) -> Any:
    cls: Any = type(_emulator(env).cloneState(include_rng=False))
    try:
        return cls(serialised)
    except (SystemError, RuntimeError, ValueError, TypeError) as error:
        raise SnapshotError(f"the emulator cannot read its state ({error}): damaged or of another version") from error


def _settled(env: Any, state: bytes) -> bytes:
    """Bring the emulator to a state that it reads and writes without change, and return it.

    Each reading rounds the state again, so it takes some rounds.
    """
    ale = _emulator(env)
    for _ in range(_MAX_ROUNDINGS):
        ale.restoreState(_state_of(env, state))
        again = _serialised(ale)
        if again == state:
            return state
        state = again
    raise SnapshotError(
        f"{env._game}: after {_MAX_ROUNDINGS} rounds ALE still reads its state differently from how it wrote it"
    )


def _watch(env: Any, held: Held, state: bytes) -> None:
    if isinstance(env.ale, WatchedALE):
        env.ale.mark(held, state)
    else:
        env.ale = WatchedALE(env.ale, held, state)


def _held(env: Any, state: bytes) -> Held:
    """Return the action that a sticky frame would repeat, and watch the emulator from now on."""
    ale = _emulator(env)
    if not stickiness(ale):
        return Held()
    held = env.ale.held(state) if isinstance(env.ale, WatchedALE) else None
    if held is None:
        held = Held() if ale.getEpisodeFrameNumber() == 0 else _search_held(env, state)
    _watch(env, held, state)
    return held


def _holds(env: Any, held: Held) -> bool:
    """Return whether the emulator holds an action for certain: it was marked, and no frame was executed since."""
    return isinstance(env.ale, WatchedALE) and not env.ale.num_frames and env.ale.marked == held


def _hold(env: Any, state: bytes, held: Held) -> None:
    """Make the emulator hold an action by executing it in a frame that must accept it; its state changes."""
    ale = _emulator(env)
    sticky = stickiness(ale)
    if 0 < sticky < 1:
        state = with_twister(state, accepting(sticky))
    ale.restoreState(_state_of(env, state))
    ale.act(held.action, held.strength)


def _search_held(env: Any, state: bytes) -> Held:
    """Return an action that has the same effect as the held one when it is repeated.

    The emulator does not report the held action. So the state after frames that only repeat it is compared with the
    state that every legal action gives. The number of frames is so large that a longer repetition is improbable.

    Raises:
        SnapshotError: Paddle strengths are continuous, so that the actions cannot be tried.
    """
    ale = _emulator(env)
    if env.continuous:
        raise SnapshotError(
            "the emulator may repeat an action that it does not report: take one snapshot right after reset, or make "
            "the game with repeat_action_probability=0"
        )
    sticky = stickiness(ale)
    num_frames = min(ceil(log(_DOUBT) / log(sticky)), _MAX_FRAMES) if sticky < 1 else 1
    # Every frame repeats the held action here, so the final state shows which action it was.
    wanted = _repeated(env, state, num_frames)
    for action in (legal.value for legal in ale.getLegalActionSet()):
        _hold(env, state, Held(action))
        if _repeated(env, state, num_frames) == wanted:
            ale.restoreState(_state_of(env, state))
            return Held(action)
    raise SnapshotError("the emulator repeats an action that is not legal: take one snapshot right after reset")


def _repeated(env: Any, state: bytes, num_frames: int) -> bytes:
    ale = _emulator(env)
    ale.restoreState(_state_of(env, with_twister(state, REPEATING)))
    for _ in range(num_frames):
        ale.act(NOOP, 1.0)
    return _serialised(ale)
