"""Attacks on files and snapshots, and the counts of their outcomes."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from traceback import format_exception
from typing import NamedTuple

import numpy as np

from tsr_gym import Snapshot
from tsr_gym.codec import encode
from tsr_gym.snapshots import MAGIC, VERSION

MAX_FAULTS = 20


class Outcome(NamedTuple):
    """What came of one attack.

    Attributes:
        count: The field of `Counts` that it belongs to.
        what: What was done, and what it brought.
    """

    count: str
    what: str


@dataclass(frozen=True, slots=True)
class Counts:
    """What came of a campaign.

    Attributes:
        tried: Attacks.
        refused: Ended in the promised error, and nothing had changed.
        right: Were taken, and all was right all the same.
        wrong: Were taken and were not right, or had changed something when they were refused.
        crashed: Ended in another error, or ended the process.
        faults: What the first of the last two kinds were.
    """

    tried: int
    refused: int
    right: int
    wrong: int
    crashed: int
    faults: tuple[str, ...] = ()


def counted(outcomes: Iterable[Outcome]) -> Counts:
    """Return the counts of outcomes."""
    came = list(outcomes)
    counts = Counter(outcome.count for outcome in came)
    faults = [f"{one.count}: {one.what}" for one in came if one.count in ("wrong", "crashed")]
    numbers = [counts[name] for name in ("refused", "right", "wrong", "crashed")]
    assert sum(numbers) == len(came)
    return Counts(len(came), *numbers, tuple(faults[:MAX_FAULTS]))


def attacked(
    what: str,
    attack: Callable[[], bool],
    promised: type[Exception] | tuple[type[Exception], ...],
    unchanged: Callable[[], bool] = lambda: True,
) -> Outcome:
    """Return what came of an attack.

    Args:
        what: What is done.
        attack: Does it, and returns whether what it brought is right.
        promised: The errors that may refuse it.
        unchanged: Whether everything is as before, asked where it was refused.
    """
    try:
        return Outcome("right" if attack() else "wrong", what)
    except promised as error:
        return Outcome("refused" if unchanged() else "wrong", f"{what}: changed before {error}")
    except Exception as error:
        return Outcome("crashed", f"{what}: {''.join(format_exception(error))[-1500:]}")


HARM = (
    *(b"\xff\xfe", b"\xed\xa0\x80", b"\x00", b"[" * 100_000, b'{"a":' * 5000, b"1" * 5000, b"null", b"-1", b"1e999"),
    *(b"NaN", b"{}", b"[]", b'"', b"'", b"\\ud800", b"\n\n", b"\r", b"\xe2\x80\xa8", b"true", b"../.."),
)


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Return other bytes than these, made of them by one damage that is drawn."""
    while True:
        changed = _DAMAGES[rng.integers(len(_DAMAGES))](data, rng)
        if changed != data:
            return changed


def _place(data: bytes, rng: np.random.Generator) -> int:
    return int(rng.integers(len(data) + 1))


def _stretch(data: bytes, rng: np.random.Generator) -> tuple[int, int]:
    first = _place(data, rng)
    return first, min(len(data), first + int(2 ** rng.uniform(0, 10)))


def _flipped(data: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(data)
    if changed:
        changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _cut(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: _place(data, rng)]


def _lost(data: bytes, rng: np.random.Generator) -> bytes:
    first, last = _stretch(data, rng)
    return data[:first] + data[last:]


def _doubled(data: bytes, rng: np.random.Generator) -> bytes:
    place, (first, last) = _place(data, rng), _stretch(data, rng)
    return data[:place] + data[first:last] + data[place:]


def _overwritten(data: bytes, rng: np.random.Generator) -> bytes:
    place, (first, last) = _place(data, rng), _stretch(data, rng)
    return (data[:place] + data[first:last] + data[place + last - first :])[: len(data)]


def _zeroed(data: bytes, rng: np.random.Generator) -> bytes:
    first, last = _stretch(data, rng)
    return data[:first] + bytes(last - first) + data[last:]


def _harmed(data: bytes, rng: np.random.Generator) -> bytes:
    place, harm = _place(data, rng), HARM[rng.integers(len(HARM))]
    return data[:place] + harm + data[place + int(rng.integers(3)) * len(harm) // 2 :]


# Single bits most often, because they get farthest.
_DAMAGES = (_flipped, _flipped, _flipped, _cut, _lost, _doubled, _overwritten, _zeroed, _harmed)


def forged(value):
    """Return a snapshot of bytes that hold any value in place of layers."""
    return Snapshot.from_bytes(sealed(encode(value)))


def sealed(payload):
    """Return the bytes of a snapshot with any payload, under the right digest."""
    return MAGIC + bytes([VERSION]) + blake2b(payload, digest_size=16).digest() + payload


def changed(snap, **parts):
    """Return a snapshot as it comes from bytes in which parts of the environment's own state are others."""
    *outer, inner = snap.layers
    return forged((*outer, inner._replace(state=inner.state._replace(**parts))))
