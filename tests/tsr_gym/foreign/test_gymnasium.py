"""Atari without ale_py: the emulator's random numbers, and which games are exact."""

import struct
from types import SimpleNamespace

import pytest

from tsr_gym import SnapshotError
from tsr_gym.foreign.atari import REPEATING, AtariAdapter, accepting, draws, seeded, twister_of, with_twister


def reference(seed, count):
    """Return the first numbers of the Mersenne twister as its authors published it (Matsumoto and Nishimura, 1998)."""
    state = [seed]
    for index in range(1, 624):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + index) & 0xFFFFFFFF)
    numbers = []
    while len(numbers) < count:
        for index in range(624):
            joined = (state[index] & 0x80000000) | (state[(index + 1) % 624] & 0x7FFFFFFF)
            state[index] = state[(index + 397) % 624] ^ (joined >> 1) ^ (0x9908B0DF if joined & 1 else 0)
        for word in state:
            word ^= word >> 11
            word ^= (word << 7) & 0x9D2C5680
            word ^= (word << 15) & 0xEFC60000
            numbers.append(word ^ (word >> 18))
    return numbers[:count]


def serialised(words, used=None, tail=b"\1\0\0\0\2\0\0\0"):
    """Return a state in the emulator's format: numbers, the console with the twister's text at its end, numbers."""
    text = b" ".join(b"%d" % word for word in (*words, *(() if used is None else (used,))))
    console = b"System\1\0 some console \0" + struct.pack("<I", len(text)) + text
    return bytes(24) + struct.pack("<I", len(console)) + console + tail


def test_the_reference_is_right():
    # The value that the C++ standard specifies for the default seed.
    assert reference(5489, 10000)[-1] == 4123659995


@pytest.mark.parametrize("seed", [1, 5489, 1731038949])
def test_a_frame_is_decided_by_every_second_number_of_the_twister(seed):
    wanted = [number / 2**32 for number in reference(seed, 2000)[::2]]
    numbers, after = draws(seeded(seed), 700)
    assert numbers.tolist() == wanted[:700]
    assert draws(after, 300)[0].tolist() == wanted[700:]


def test_a_twister_is_read_where_it_stands_and_written_back_as_it_was():
    twister = draws(seeded(7), 33)[1]
    state = serialised([1] * 624, 624)
    written = with_twister(state, twister)
    assert twister_of(written) == twister
    assert with_twister(written, twister_of(state)) == state
    assert written[-8:] == state[-8:]


def test_a_form_without_a_count_is_read_and_written_too():
    state = serialised([1] * 624)
    assert twister_of(state).used == 624
    assert with_twister(with_twister(state, seeded(3)), twister_of(state)) == state
    assert twister_of(with_twister(state, seeded(3))) == seeded(3)


@pytest.mark.parametrize(
    "state",
    [b"", bytes(40), serialised([1] * 10, 1), serialised([1] * 624, 624)[:-40], b"x" + serialised([1] * 624, 624)],
    ids=["nothing", "zeros", "too few words", "cut short", "shifted"],
)
def test_another_form_is_refused(state):
    with pytest.raises(SnapshotError, match="ale_py"):
        twister_of(state)


def test_twisters_that_force_a_frame_to_accept_or_to_repeat_do():
    for probability in (0.01, 0.25, 0.9, 0.999):
        assert draws(accepting(probability), 1)[0][0] >= probability
    assert draws(REPEATING, 2000)[0].max() == 0


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({}, "exact"),
        ({"sound_obs": True}, "none"),
        ({"_game": "miniature_golf"}, "none"),
        ({"_game": "video_checkers"}, "exact"),
        ({"_game": "video_checkers", "_frameskip": (2, 5)}, "none"),
        ({"_game": "video_checkers", "_frameskip": 1, "_obs_type": "ram"}, "exact"),
    ],
    ids=str,
)
def test_a_game_is_exact_where_ale_saves_all_of_what_it_shows(settings, level):
    game = {"_game": "breakout", "_frameskip": 4, "_obs_type": "rgb", "sound_obs": False}
    support = AtariAdapter().support(SimpleNamespace(**(game | settings)))
    assert support.level == level
    if "sound_obs" in settings:
        assert support.reason == "breakout: the sound depends on earlier frames, which ALE does not save"
