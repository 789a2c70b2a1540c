"""Snapshots that somebody damaged and gave the right digest again: refused, or exactly what their bytes say."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from tests.abuse.counts import Counts, Outcome, attacked, counted
from tests.abuse.damaged_bytes import damaged
from tests.tsr_gym.forged import forged, sealed
from tsr_gym import Snapshot, SnapshotError, restore, snapshot
from tsr_gym.codec import outline
from tsr_gym.testing.recording import Actions

NAMES = ("tsr/Sokoban-v0", "tsr/FrozenLake-v0", "tsr/WebShop-v0", "tsr/RetrievalQA-v0", "CartPole-v1")
HEAD = len(sealed(b""))
OTHERS = (None, True, -1, 2**70, 1e300, float("nan"), "", "\ud800", b"x", (), ((), ()), [], {}, np.zeros(2), np.int8(3))


def campaign(count: int, seed: int) -> Counts:
    """Return what comes of forged snapshots of every environment, so many in all."""
    return counted(_attacks(count, np.random.default_rng(seed)))


def _attacks(count: int, rng: np.random.Generator) -> Iterator[Outcome]:
    for number in range(count):
        name = NAMES[number % len(NAMES)]
        # Made anew, because an environment that took a forged state may not be playable.
        env = gym.make(name)
        yield _attacked(name, env, _played(env, rng), _played(env, rng), rng)


def _played(env: gym.Env[Any, Any], rng: np.random.Generator) -> Snapshot:
    """Return a snapshot of the middle of an episode, in which the environment then stands."""
    actions = Actions(env, int(rng.integers(1000)))
    env.reset(seed=int(rng.integers(1000)))
    for _ in range(rng.integers(3)):
        before = snapshot(env)
        _, _, terminated, truncated, _ = env.step(actions.draw())
        if terminated or truncated:
            restore(env, before)
            break
    return snapshot(env)


def _attacked(name: str, env: gym.Env[Any, Any], theirs: Snapshot, ours: Snapshot, rng: np.random.Generator) -> Outcome:
    kind = ("value", "bytes", "payload", "payload")[rng.integers(4)]
    if kind == "value":
        places = list(_places(theirs.layers))
        place, other = places[rng.integers(len(places))], OTHERS[rng.integers(len(OTHERS))]
        data = forged(_replaced(theirs.layers, place, other)).to_bytes()
        what = f"{name}: {other!r} at {place} of the layers"
    else:
        whole = theirs.to_bytes()
        data = damaged(whole, rng) if kind == "bytes" else sealed(damaged(whole[HEAD:], rng))
        what = f"{name}: {kind} {data.hex()[:4000]}"

    def take() -> bool:
        snap = Snapshot.from_bytes(data)
        restore(env, snap)
        return kind != "bytes" and _said(snapshot(env)) == _said(snap)

    return attacked(what, take, SnapshotError, lambda: snapshot(env) == ours)


def _said(snap: Snapshot) -> str:
    """Return what a snapshot says, however its bytes spell it: they may pad a number and order a dictionary."""

    def ordered(value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(part, tuple) and len(part) == 2 for part in value):
            value = sorted(value, key=repr)
        return [type(value).__name__, *map(ordered, value)] if isinstance(value, list | tuple) else value

    return repr(ordered(outline(snap.to_bytes()[HEAD:])))


def _places(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield the paths to everything inside nested tuples."""
    for number, part in enumerate(value if isinstance(value, tuple) else ()):
        yield (*path, number)
        yield from _places(part, (*path, number))


def _replaced(value: Any, path: tuple[int, ...], other: Any) -> Any:
    if not path:
        return other
    parts = [_replaced(part, path[1:], other) if number == path[0] else part for number, part in enumerate(value)]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def test_forged_snapshots_are_refused_or_what_their_bytes_say(hold):
    counts = hold("forged snapshots", campaign, 100)
    assert counts.refused > 0 < counts.right
