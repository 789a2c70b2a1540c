"""Train, validation and test instances that never meet, decided by the instance itself and not by its seed.

Instances that are equal up to symmetry are one instance: their key is that of a form that all symmetries share.
"""

from hashlib import blake2b

# Share of all instances, in tenths: whoever draws an instance of a split draws until one falls into it.
SPLITS = {"all": range(10), "train": range(8), "valid": range(8, 9), "test": range(9, 10)}


def in_split(canonical_key: bytes, split: str) -> bool:
    """Return whether an instance belongs to a split.

    Args:
        canonical_key: Bytes that all symmetric forms of the instance share.
        split: A key of `SPLITS`.
    """
    return blake2b(canonical_key, digest_size=8).digest()[0] % 10 in SPLITS[split]


def symmetries(rows: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the eight rotations and reflections of a rectangle of characters.

    >>> len(set(symmetries(("ab", "cd"))))
    8
    """
    turned = tuple("".join(column) for column in zip(*rows, strict=True))
    views = []
    for view in (rows, turned):
        mirrored = tuple(row[::-1] for row in view)
        views += [view, mirrored, view[::-1], mirrored[::-1]]
    return views
