"""RandomStream: a position is a value, and a caller that holds the generator draws from the same stream."""

import pickle

import numpy as np
import pytest
from gymnasium.utils import seeding

from tsr_gym import SnapshotError
from tsr_gym.codec import decode, encode
from tsr_gym.random_stream import Drawn, RandomStream, Seeded, canonical, position_of

KINDS = [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]


def numbers(generator, count=5):
    return generator.random(count).tolist()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_position_continues_any_bit_generator_exactly(kind):
    generator = np.random.Generator(kind(7))
    generator.random(3)
    # Half of a 64-bit draw stays in the generator's buffer: it is part of the position.
    generator.integers(2**31, dtype=np.uint32)
    twin = RandomStream(position=decode(encode(position_of(generator)))).draw()
    halves = [each.integers(2**31, size=3, dtype=np.uint32).tolist() for each in (twin, generator)]
    assert halves[0] == halves[1]
    assert numbers(twin) == numbers(generator)


def test_a_seeded_position_gives_gymnasiums_generator_of_that_seed():
    stream = RandomStream(position=Seeded(42))
    assert numbers(stream.draw()) == numbers(seeding.np_random(42)[0])


def test_equal_streams_have_one_canonical_position():
    fresh = seeding.np_random(5)[0]
    assert canonical(Seeded(5)) == position_of(fresh)
    assert canonical(position_of(fresh)) == position_of(fresh)
    fresh.random()
    assert canonical(Seeded(5)) != position_of(fresh)


def test_reading_a_position_draws_nothing():
    stream = RandomStream(position=Seeded(1))
    assert stream.position == stream.position == Seeded(1)
    before = stream.draw().random()
    stream.position = Seeded(1)
    assert stream.position == Seeded(1)
    assert stream.draw().random() == before


def test_untouched_means_that_nothing_was_drawn_since_the_position_was_known():
    stream = RandomStream(position=Seeded(1))
    assert stream.untouched
    stream.draw()
    assert not stream.untouched
    assert isinstance(stream.position, Drawn)
    assert stream.untouched


def test_a_generator_that_was_handed_out_stays_the_streams_own():
    stream = RandomStream(position=Seeded(1))
    held = stream.expose()
    first = stream.position
    held.random()
    assert stream.position != first
    stream.position = first
    assert numbers(held) == numbers(seeding.np_random(1)[0])
    stream.position = Seeded(9)
    assert numbers(held) == numbers(seeding.np_random(9)[0])


def test_a_handed_out_generator_is_never_called_untouched():
    stream = RandomStream(position=Seeded(1))
    stream.expose()
    assert stream.position
    assert not stream.untouched


def test_a_position_of_another_bit_generator_replaces_the_generator():
    stream = RandomStream(np.random.default_rng(1))
    other = np.random.Generator(np.random.Philox(4))
    stream.position = position_of(other)
    assert numbers(stream.draw()) == numbers(other)


def test_an_unknown_bit_generator_is_refused_by_name():
    stream = RandomStream(position=Drawn("Dice", ()))
    with pytest.raises(SnapshotError, match=r"'Dice'; .*PCG64"):
        stream.draw()


def test_a_stream_without_numbers_says_so():
    stream = RandomStream()
    assert not stream.seeded
    assert stream.expose() is None
    with pytest.raises(SnapshotError, match="call reset"):
        stream.position  # noqa: B018


def test_positions_are_immutable_and_hashable_for_the_default_generator():
    position = position_of(np.random.default_rng(2))
    assert hash(position) == hash(pickle.loads(pickle.dumps(position)))
    with pytest.raises(AttributeError):
        position.state = ()
