"""What a child process of `check_snapshot` does: make the environment again and play what is on record.

Run as ``python -m tsr_gym.testing.replay_child``; the job comes as JSON on standard input, the answer goes to standard
output.
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
from tsr_gym.testing.rebuild import build


def answer(job: dict[str, Any]) -> list[dict[str, list[Shot]]]:
    """Return, per episode, what is shown after a restore and after a reset."""
    answers = []
    for episode in job["episodes"]:
        snap = Snapshot.from_bytes(base64.b64decode(episode["snapshot"]))
        actions = decode(base64.b64decode(episode["actions"]))
        env = build(job["order"])
        restore(env, snap)
        restored = _play(env, actions[episode["turn"] :])
        # A restored environment has seen no reset, a new one no restore.
        env = build(job["order"])
        env.reset(seed=episode["seed"])
        answers.append({"restored": restored, "reset": _play(env, actions)})
    return answers


def _play(env: gym.Env[Any, Any], actions: list[Any]) -> list[Shot]:
    return [standing(env), *(shown(env, env.step(action)) for action in actions)]


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):
        result = answer(json.load(sys.stdin))
    json.dump(result, sys.stdout)
