"""The child process of `check_snapshot`: make the environment again and play the recorded actions.

Run as ``python -m tsr_gym.testing.replay_child``. It reads the job as JSON from standard input and writes the answer to
standard output.
"""

import base64
import json
import sys
from contextlib import redirect_stdout
from typing import Any

import gymnasium as gym

from tsr_gym.codec import decode
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import restore
from tsr_gym.testing.facts import Shot, shown, standing
from tsr_gym.testing.recording import take
from tsr_gym.testing.trial import build


def answer(job: dict[str, Any]) -> list[dict[str, list[Shot]]]:
    """Return, for each episode, the facts after a restore and after a reset."""
    return [
        {"restored": _after_restore(job["order"], episode), "reset": _after_reset(job["order"], episode)}
        for episode in job["episodes"]
    ]


def _after_restore(order: dict[str, Any], episode: dict[str, Any]) -> list[Shot]:
    """Return the facts of a new environment that is restored without a reset."""
    if episode["snapshot"] is None:
        return []
    env = build(order)
    restore(env, Snapshot.from_bytes(base64.b64decode(episode["snapshot"])))
    return [Shot(standing(env), ()), *_play(env, _actions(episode)[episode["turn"] :])]


def _after_reset(order: dict[str, Any], episode: dict[str, Any]) -> list[Shot]:
    if not episode["reset"]:
        return []
    env = build(order)
    return [shown(env, env.reset(seed=episode["seed"])), *_play(env, _actions(episode))]


def _actions(episode: dict[str, Any]) -> list[Any]:
    actions: list[Any] = decode(base64.b64decode(episode["actions"]))
    return actions


def _play(env: gym.Env[Any, Any], actions: list[Any]) -> list[Shot]:
    return [shown(env, take(env, action)) for action in actions]


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):
        result = answer(json.load(sys.stdin))
    json.dump(result, sys.stdout)
