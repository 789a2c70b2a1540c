"""The random numbers of the Arcade Learning Environment, read and rewritten in a serialised emulator state.

ALE draws twice per frame from a Mersenne twister, once for each player, and a frame repeats the action of the frame
before where the draw is below `repeat_action_probability`. The twister's state is the last text in the serialised
state, in the form of the C++ standard library.
"""

import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tsr_gym.errors import SnapshotError

_DRAWS_PER_FRAME = 2
_SIZE = 624
# Where the serialised state holds the length of the emulator's part, which the twister's text ends.
_LENGTH = slice(24, 28)
_WIDTH = 4


class Twister(NamedTuple):
    """A Mersenne twister: its words as bytes, and how many of them were used."""

    words: bytes
    used: int


def _text(state: bytes) -> slice:
    """Return where the twister's text stands."""
    if len(state) > _LENGTH.stop:
        end = _LENGTH.stop + struct.unpack("<I", state[_LENGTH])[0]
        start = len(state[:end].rstrip(b"0123456789 "))
        if start > _LENGTH.stop and state[start - _WIDTH : start] == struct.pack("<I", end - start):
            return slice(start, end)
    raise SnapshotError(
        "this version of ale_py keeps its random numbers in a form that tsr_gym does not know: make the game with "
        "repeat_action_probability=0"
    )


def twister_of(state: bytes) -> Twister:
    """Return the twister of a serialised state.

    Raises:
        SnapshotError: It is not where it is known to be.
    """
    numbers = np.array(state[_text(state)].split(), dtype=np.uint32)
    if len(numbers) not in (_SIZE, _SIZE + 1):
        raise SnapshotError(
            f"wanted {_SIZE} words of a Mersenne twister, got {len(numbers)}: another version of ale_py"
        )
    # Some libraries write the words in the order in which they were last drawn, and no count.
    return Twister(numbers[:_SIZE].tobytes(), int(numbers[_SIZE]) if len(numbers) > _SIZE else _SIZE)


def with_twister(state: bytes, twister: Twister) -> bytes:
    """Return a serialised state with other random numbers.

    Raises:
        SnapshotError: The twister is not where it is known to be.
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
    """Return what decides over the next frames, one number in [0, 1) for each, and the twister afterwards."""
    bits = np.random.MT19937(0)
    words = np.frombuffer(twister.words, np.uint32)
    bits.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": twister.used}}
    raw = bits.random_raw(_DRAWS_PER_FRAME * num_frames)
    return raw[::_DRAWS_PER_FRAME] / 2.0**32, _twister(bits)


def seeded(seed: int) -> Twister:
    """Return the twister that a seed of 32 bits makes in ALE."""
    bits = np.random.MT19937(0)
    bits._legacy_seeding(seed)
    return _twister(bits)


def _twister(bits: np.random.MT19937) -> Twister:
    state: Any = bits.state["state"]
    return Twister(state["key"].tobytes(), int(state["pos"]))


@lru_cache(maxsize=64)
def accepting(probability: float) -> Twister:
    """Return a twister whose first frame carries out the action that it is given."""
    return next(made for made in map(seeded, range(10**6)) if draws(made, 1)[0][0] >= probability)


# A twister of zeros draws nothing but zeros: every frame repeats the last action.
REPEATING = Twister(bytes(4 * _SIZE), _SIZE)
