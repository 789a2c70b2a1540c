"""What differs between two plays or two states, in words: one language for proofs at run time and for checks."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from tsr_gym.foreign.thawed import same

MAX_EXCERPT = 80
MAX_ELEMENTS = 1_000


class Fact(NamedTuple):
    """One thing that an environment showed, or that it holds.

    Attributes:
        what: What it is, and whose.
        value: What it is compared by: a frozen value, or the digest of one.
        text: Its representation; that of the value where there is none.
    """

    what: str
    value: Any
    text: str = ""


def difference(wanted: Iterable[Fact], came: Iterable[Fact]) -> str | None:
    """Return the first difference between facts in words, None where there is none."""
    wanted, came = tuple(wanted), tuple(came)
    for one, other in zip(wanted, came, strict=False):
        if one.what != other.what:
            return f"wanted {one.what}, got {other.what}"
        if not same(one.value, other.value):
            texts = one.text or text_of(one.value), other.text or text_of(other.value)
            return f"{one.what} differs: {_excerpts(*texts)}"
    if len(wanted) != len(came):
        extra = (wanted if len(wanted) > len(came) else came)[min(len(wanted), len(came))]
        return f"{extra.what} is {'missing' if len(wanted) > len(came) else 'new'}"
    return None


def text_of(value: object) -> str:
    """Return how messages show a value."""
    # Numpy leaves out the middle of a large array, and prints all of a small one.
    if isinstance(value, np.ndarray) and value.size > MAX_ELEMENTS:
        digest = blake2b(value.tobytes(), digest_size=4).hexdigest()
        return f"{value.dtype} array of shape {value.shape} with the digest {digest}"
    return repr(value)


def _excerpts(wanted: str, came: str) -> str:
    """Return two texts cut to where they begin to differ."""
    if wanted == came:
        return f"both read {wanted[:MAX_EXCERPT]}, but their types, bits or orders differ"
    same = next(
        (index for index, pair in enumerate(zip(wanted, came, strict=False)) if pair[0] != pair[1]),
        min(len(wanted), len(came)),
    )
    start = max(0, same - MAX_EXCERPT // 2)
    end = start + MAX_EXCERPT
    dots = "..." if start else ""
    return f"wanted {dots}{wanted[start:end]}, got {dots}{came[start:end]}"
