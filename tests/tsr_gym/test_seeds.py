"""derive_seed: the same in every process, and unrelated for different purposes."""

from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym.own_process import run_python
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
