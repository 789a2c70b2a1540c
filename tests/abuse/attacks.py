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
    """The outcome of one attack.

    Attributes:
        count: The field of `Counts` that it belongs to.
        what: The attack and its result, for messages.
    """

    count: str
    what: str


@dataclass(frozen=True, slots=True)
class Counts:
    """The outcomes of a campaign.

    Attributes:
        tried: Attacks.
        refused: Attacks that ended in the promised error and changed nothing.
        right: Attacks that were accepted with a correct result.
        wrong: Attacks that were accepted with a wrong result, or that changed something before they were refused.
        crashed: Attacks that ended in another error, or ended the process.
        faults: Descriptions of the first wrong or crashed attacks.
    """

    tried: int
    refused: int
    right: int
    wrong: int
    crashed: int
    faults: tuple[str, ...] = ()


def counted(outcomes: Iterable[Outcome]) -> Counts:
    """Return the counts of the outcomes."""
    came = list(outcomes)
    counts = Counter(outcome.count for outcome in came)
    faults = [f"{outcome.count}: {outcome.what}" for outcome in came if outcome.count in ("wrong", "crashed")]
    numbers = [counts[name] for name in ("refused", "right", "wrong", "crashed")]
    assert sum(numbers) == len(came)
    return Counts(len(came), *numbers, tuple(faults[:MAX_FAULTS]))


def attacked(
    what: str,
    attack: Callable[[], bool],
    promised: type[Exception] | tuple[type[Exception], ...],
    unchanged: Callable[[], bool] = lambda: True,
) -> Outcome:
    """Return the outcome of an attack.

    Args:
        what: Its description.
        attack: Performs it and returns whether the result is correct.
        promised: The errors that may refuse it.
        unchanged: Returns whether nothing changed; called if the attack was refused.
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
    """Return the bytes with one random damage, which changes at least one byte."""
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


# Single bits most often, because they pass the most checks.
_DAMAGES = (_flipped, _flipped, _flipped, _cut, _lost, _doubled, _overwritten, _zeroed, _harmed)


def forged(value):
    """Return a snapshot from bytes that hold any value in place of layers."""
    return Snapshot.from_bytes(sealed(encode(value)))


def sealed(payload):
    """Return the bytes of a snapshot with any payload and its correct digest."""
    return MAGIC + bytes([VERSION]) + blake2b(payload, digest_size=16).digest() + payload


def changed(snap, **parts):
    """Return a snapshot from bytes in which parts of the environment's state are replaced."""
    *outer, inner = snap.layers
    return forged((*outer, inner._replace(state=inner.state._replace(**parts))))
