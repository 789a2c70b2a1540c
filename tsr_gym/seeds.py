"""Seeds that depend only on what they are for: never on batching, row order, process or hash randomisation."""

from collections.abc import Callable
from functools import partial
from hashlib import blake2b


def derive_seed(*parts: int | str | bytes) -> int:
    """Return a 63-bit seed for a purpose.

    Equal parts give equal seeds in every process; any change gives an unrelated seed.

    Args:
        parts: What the seed is for, such as a task seed, a word for the purpose and the path from the root.

    >>> derive_seed(7, "noise", 0, 3) == derive_seed(7, "noise", 0, 3)
    True
    >>> derive_seed(7, "noise", 0, 3) == derive_seed(7, "noise", 3, 0)
    False
    """
    return _seed_of(repr(parts))


def numbered_seeds(first: int | str | bytes, *parts: int | str | bytes) -> Callable[[int], int]:
    """Return `derive_seed` of some parts and a number, as a function of the number.

    The parts are read once, so that the seeds of a node's children cost the same at any depth.

    >>> numbered_seeds(7, "noise", 0)(3) == derive_seed(7, "noise", 0, 3)
    True
    """
    head = repr((first, *parts))[: -1 if parts else -2]
    return partial(_numbered, head)


def _numbered(head: str, number: int) -> int:
    return _seed_of(f"{head}, {number})")


def _seed_of(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
