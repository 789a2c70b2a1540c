"""Seeds and random streams: seeds depend only on their purpose, and a position is a value that callers share."""

import pickle
from hashlib import blake2b

import numpy as np
import pytest
from gymnasium.utils import seeding
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym.own_process import run_python
from tsr_gym import SnapshotError
from tsr_gym.codec import decode, encode
from tsr_gym.random_stream import Drawn, RandomStream, Seeded, canonical, position_of
from tsr_gym.seeds import derive_seed, numbered_seeds

# Computed with `printf '%s' "(7, 'noise', 0, 3)" | b2sum -l 64`: eight bytes, little end first, halved.
GOLDEN = {(7, "noise", 0, 3): int.from_bytes(bytes.fromhex("5a0bd230934056fa"), "little") >> 1}


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_a_seed_is_the_same_in_every_process(hash_seed):
    code = "from tsr_gym.seeds import derive_seed; print(derive_seed(7, 'noise', 0, 3), derive_seed('ä', b'x'))"
    wanted = [
        GOLDEN[7, "noise", 0, 3],
        int.from_bytes(blake2b("('ä', b'x')".encode(), digest_size=8).digest(), "little") >> 1,
    ]
    assert run_python(code, hash_seed=hash_seed).split() == [str(seed) for seed in wanted]


parts = st.lists(st.integers() | st.text(max_size=5) | st.binary(max_size=5), max_size=4).map(tuple)


@given(parts, parts)
def test_other_parts_give_another_seed(left, right):
    assert (derive_seed(*left) == derive_seed(*right)) == (left == right)


@pytest.mark.parametrize(
    ("left", "right"),
    [((1, 23), (12, 3)), (("a", "b"), ("ab",)), ((1,), ("1",)), (("x",), (b"x",)), ((), (0,)), ((1,), (1, 0))],
)
def test_parts_are_not_run_together(left, right):
    assert derive_seed(*left) != derive_seed(*right)


@given(parts.filter(len), st.integers())
def test_seeds_by_number_are_those_of_the_parts_and_the_number(parts, number):
    assert numbered_seeds(*parts)(number) == derive_seed(*parts, number)


@given(parts)
def test_a_seed_fits_into_what_numpy_and_gymnasium_take(parts):
    assert 0 <= derive_seed(*parts) < 2**63


def test_neighbouring_seeds_are_unrelated():
    # Each of the 63 bits is set in about half of the seeds: four standard deviations of a fair coin.
    seeds = [derive_seed(number) for number in range(1000)]
    counts = [sum(seed >> bit & 1 for seed in seeds) for bit in range(63)]
    assert all(437 <= count <= 563 for count in counts)


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
