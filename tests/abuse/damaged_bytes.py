"""Bytes that were damaged: bits that flipped, stretches that are lost, moved or doubled, and text that means harm."""

import numpy as np

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
