"""Snapshots that somebody made up: their digest is right, and their content is not."""

from hashlib import blake2b

from tsr_gym import Snapshot
from tsr_gym.codec import encode
from tsr_gym.snapshots import MAGIC, VERSION


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
