"""Seeds that depend only on their purpose: never on batching, row order, process or hash randomisation."""

from collections.abc import Callable
from functools import partial
from hashlib import blake2b


def derive_seed(*parts: int | str | bytes) -> int:
    """Return a 63-bit seed for a purpose.

    Equal parts give equal seeds in every process; any change gives an unrelated seed.

    Args:
        parts: The purpose of the seed, such as a task seed, a word and the path from the root.

    >>> derive_seed(7, "noise", 0, 3) == derive_seed(7, "noise", 0, 3)
    True
    >>> derive_seed(7, "noise", 0, 3) == derive_seed(7, "noise", 3, 0)
    False
    """
    return _seed_of(repr(parts))


def numbered_seeds(first: int | str | bytes, *parts: int | str | bytes) -> Callable[[int], int]:
    """Return a function from a number to `derive_seed` of the parts and that number.

    The parts are formatted once, so the seeds of a node's children cost the same at any depth.

    >>> numbered_seeds(7, "noise", 0)(3) == derive_seed(7, "noise", 0, 3)
    True
    """
    head = repr((first, *parts))[: -1 if parts else -2]
    return partial(_numbered, head)


def _numbered(head: str, number: int) -> int:
    return _seed_of(f"{head}, {number})")


def _seed_of(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
