"""Training runs whose files are damaged or whose process is killed: refused, or resumed to the same result."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from tests.abuse.attacks import Counts, Outcome, attacked, counted, damaged
from tests.agents.short_runs import UPDATES, files_of, result, train_and_kill, train_flags
from tsr_gym import CheckpointError, ConfigError, InvalidTree, Tree
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.reports.methods import load_run
from tsr_gym.agents.runs.checkpoint import checkpoints
from tsr_gym.agents.runs.trainer import resume_run

LOGS = ("metrics.jsonl", "evaluations.jsonl")


def damage_campaign(count: int, seed: int, run: Path) -> Counts:
    """Return the outcomes of damage to the files of a run; the files are restored afterwards."""
    return counted(_damages(count, np.random.default_rng(seed), run))


def _damages(count: int, rng: np.random.Generator, run: Path) -> Iterator[Outcome]:
    sound = files_of(run)
    latest = str(checkpoints(run)[-1].relative_to(run))
    kinds = (["run.toml"], LOGS, [name for name in sound if name.startswith("trees/")])
    kinds += ([name for name in sound if name.startswith(latest)],)
    for number in range(count):
        names = kinds[number % len(kinds)]
        name = names[rng.integers(len(names))]
        (run / name).write_bytes(damaged(sound[name], rng))
        yield _attacked(run, name, sound)
        for other, data in sound.items():
            (run / other).parent.mkdir(parents=True, exist_ok=True)
            (run / other).write_bytes(data)


def _attacked(run: Path, name: str, sound: dict[str, bytes]) -> Outcome:
    before = files_of(run)
    data = before[name]
    what = f"{name}, first changed at {_first_change(sound[name], data)}, of {len(data)} bytes"

    def unchanged() -> bool:
        return files_of(run) == before

    if name.startswith("trees/"):
        return attacked(what, lambda: _is_read_alike(run / name), InvalidTree, unchanged)
    refusals = (CheckpointError, ConfigError)
    reported = attacked(what, lambda: _is_reported(run) and unchanged(), refusals, unchanged)
    if name == "evaluations.jsonl" or reported.count in ("wrong", "crashed"):
        return reported
    # A resumed run may drop log lines that it will write again, and a torn last line.
    return attacked(what, lambda: _resumes(run, name, before), refusals, unchanged)


def _first_change(left: bytes, right: bytes) -> int:
    return next((place for place, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), len(right))


def _is_read_alike(path: Path) -> bool:
    tree = Tree.load(path)
    twin = path.with_suffix(".again")
    tree.save(twin)
    same = Tree.load(twin).nodes == tree.nodes
    twin.unlink()
    return same


def _is_reported(run: Path) -> bool:
    text = load_run(run).config.to_toml()
    return TrainConfig.from_toml(text).to_toml() == text


def _resumes(run: Path, name: str, before: dict[str, bytes]) -> bool:
    trainer = resume_run(run)
    after = files_of(run)
    if before.keys() != after.keys() or any(before[file] != after[file] for file in before if file not in LOGS):
        return False
    # Digests guard the files of a checkpoint. The list of digests is guarded only against malformed JSON.
    return trainer.progress.update == 5 and (not name.startswith("checkpoints/") or name.endswith("manifest.json"))


@pytest.fixture(scope="module")
def run(undisturbed, tmp_path_factory):
    """A separate copy of a run for the campaign."""
    return Path(shutil.copytree(undisturbed, tmp_path_factory.mktemp("damaged") / "run"))


def test_damaged_files_of_a_run_are_refused_and_stay(hold, run):
    before = files_of(run)
    counts = hold("files of a run", lambda count, seed: damage_campaign(count, seed, run), 40)
    assert counts.refused > 0
    assert files_of(run) == before


def kill_campaign(count: int, seed: int, whole: dict[str, Any], base_model: Path) -> Counts:
    """Return the outcomes of killing runs at random times, at most three times each.

    Args:
        count: Number of kills.
        seed: Seed of the times, which also depend on the load of the machine.
        whole: The result of an undisturbed run.
        base_model: The initial model.
    """
    return counted(_kills(count, np.random.default_rng(seed), whole, base_model))


def _kills(count: int, rng: np.random.Generator, whole: dict[str, Any], base_model: Path) -> Iterator[Outcome]:
    left = count
    while left > 0:
        with TemporaryDirectory() as home:
            run = Path(home) / "run"
            moments = [(int(rng.integers(UPDATES - 2)), rng.uniform(0, 0.2)) for _ in range(min(left, 3))]
            killed = 0
            for moment in moments:
                args = train_flags(run, base_model) if not run.exists() else ["train", "--resume", run]
                killed += train_and_kill(args, run, *moment)
            # A run that ended before its kill does not count.
            left -= killed
            ended = attacked(f"killed at {moments}", lambda run=run: _finishes(run, whole), ())
            yield from [ended] * killed


def _finishes(run: Path, whole: dict[str, Any]) -> bool:
    return resume_run(run).run() and result(run) == whole


@pytest.fixture(scope="module")
def whole(undisturbed):
    return result(undisturbed)


def test_a_run_that_is_killed_at_any_time_ends_with_the_same_result(hold, whole, base_model):
    counts = hold("kills of a run", lambda count, seed: kill_campaign(count, seed, whole, base_model), 2)
    # A kill cannot be refused.
    assert counts.refused == 0
    assert counts.right == counts.tried
