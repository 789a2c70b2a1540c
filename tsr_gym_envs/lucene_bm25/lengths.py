"""Passage lengths as Lucene keeps them: one byte each, exact up to 40, then with four significant bits."""

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Singles = NDArray[np.float32]
# Lengths below this have a byte of their own each, the others share what is left.
_EXACT = 24


def _length(byte: int) -> int:
    if byte < _EXACT:
        return byte
    shift, rest = divmod(byte - _EXACT, 8)
    return _EXACT + (rest if shift == 0 else (rest + 8) << (shift - 1))


# The length that a byte stands for, `[256]`: SmallFloat.byte4ToInt.
LENGTHS = np.array([_length(byte) for byte in range(256)], np.int64)
LENGTHS.setflags(write=False)


def length_bytes(lengths: NDArray[np.int64]) -> Bytes:
    """Return the byte of the greatest length that is not above each of the given: SmallFloat.intToByte4."""
    return (np.searchsorted(LENGTHS, lengths, side="right") - 1).astype(np.uint8)


def inverse_norms(k1: float, b: float, mean_length: float) -> Singles:
    """Return for every length byte what a term's frequency is multiplied by, `[256]`, in Lucene's single precision."""
    one, k1_, b_ = np.float32(1), np.float32(k1), np.float32(b)
    lengths = LENGTHS.astype(np.float32)
    with np.errstate(divide="ignore"):
        return one / (k1_ * ((one - b_) + b_ * lengths / np.float32(mean_length)))
