"""Seeds that depend only on what they are for: never on batching, row order, process or hash randomisation."""

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
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1
