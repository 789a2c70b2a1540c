"""The rule about other processes: the same bytes and the same seeds give the same episodes under another hash seed."""

import base64
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tsr_gym.codec import encode
from tsr_gym.errors import CheckFailed
from tsr_gym.foreign.differences import Fact, difference
from tsr_gym.testing.facts import is_own
from tsr_gym.testing.recording import Recording, has_bytes
from tsr_gym.testing.trial import Trial

HASH_SEEDS = ("1", "2")
TIMEOUT = 120


def other_processes_replay(trial: Trial) -> None:
    """Two processes with other hash seeds restore the bytes, and play from the seed, as on record."""
    if trial.recipe.order is None:
        raise CheckFailed(
            "other_process",
            f"another process cannot make {trial.name} again: pass factory= as a function of a module or its name "
            "'module:name', or switch this part off with other_processes=False",
        )
    work = [(recording, turn) for recording in trial.recordings[:2] for turn in recording.points]
    job = json.dumps({"order": trial.recipe.order, "episodes": [_order(trial, *one) for one in work]})
    with ThreadPoolExecutor(len(HASH_SEEDS)) as pool:
        answers = list(pool.map(lambda hash_seed: _answer(hash_seed, job, trial), HASH_SEEDS))
    own = is_own(trial.env)
    for hash_seed, answer in zip(HASH_SEEDS, answers, strict=True):
        story = f"{trial.name} in another process (PYTHONHASHSEED={hash_seed})"
        for (recording, turn), episode in zip(work, answer, strict=True):
            _expect_same(recording, turn, episode["restored"], f"{story}, restored to turn {turn}")
            # After a reset, a foreign environment may keep what it does not use.
            _expect_same(recording, 0, episode["reset"], f"{story}, after reset(seed={recording.seed})", standing=own)


def _order(trial: Trial, recording: Recording, turn: int) -> dict[str, Any]:
    snap = recording.snapshots[turn]
    return {
        "seed": recording.seed,
        "turn": turn,
        "snapshot": base64.b64encode(snap.to_bytes()).decode() if has_bytes(snap) else None,
        "reset": turn == 0 and trial.starts_afresh,
        "actions": base64.b64encode(encode(recording.actions)).decode(),
    }


def _answer(hash_seed: str, job: str, trial: Trial) -> list[dict[str, Any]]:
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    try:
        child = subprocess.run(
            [sys.executable, "-m", "tsr_gym.testing.replay_child"],
            input=job,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths},
        )
    except subprocess.TimeoutExpired as error:
        raise CheckFailed("other_process", f"{trial.name} took over {TIMEOUT} s in another process") from error
    if child.returncode:
        tail = "\n".join(child.stderr.strip().splitlines()[-3:])
        raise CheckFailed("other_process", f"{trial.name} cannot be replayed in another process: {tail}")
    answer: list[dict[str, Any]] = json.loads(child.stdout)
    return answer


def _expect_same(
    recording: Recording, turn: int, came: list[list[list[list[str]]]], story: str, *, standing: bool = True
) -> None:
    for number, shot in enumerate(came, start=turn):
        stands, returned = (tuple(Fact(*one) for one in facts) for facts in shot)
        wanted = recording.shots[number]
        found = difference(wanted.standing, stands) if standing else None
        # The first shot after a restore has nothing returned, because nothing was called.
        if returned and not found:
            found = difference(wanted.returned, returned)
        if found:
            raise CheckFailed(
                "other_process",
                f"{story}, turn {number}: {found}. Likely the order of a set, or hash(): sort before use",
            )
