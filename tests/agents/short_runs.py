"""Short training runs and what of them must repeat: everything but the clock."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from safetensors.torch import load_file

from tests.conftest import ROOT
from tsr_gym.agents.cli import main
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.lessons.settings import LessonConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.runs.checkpoint import checkpoints
from tsr_gym.agents.runs.config import RunConfig, TrainConfig
from tsr_gym.agents.runs.log import JsonLines
from tsr_gym.agents.runs.trainer import start_run

UPDATES = 5
FLAGS = {
    "--groups": 2,
    "--trajectories": 3,
    "--filter": "none",
    "--max-tokens": 6,
    "--lr": 0.002,
    "--critic-lr": 0.002,
    "--minibatch": 3,
    "--updates": UPDATES,
    "--eval-every": 2,
    "--eval-instances": 4,
    "--checkpoint-every": 2,
    "--save-trees": 1,
}


def short_run(out, model_dir, **changes):
    """Return the configuration of a short run on Sokoban, the one that `FLAGS` spells; changes go by section."""
    config = TrainConfig(
        env="sokoban",
        search=SearchConfig(groups=2, trajectories=3),
        lessons=LessonConfig(filter="none"),
        model=ModelConfig(model=str(model_dir), max_tokens=6),
        learn=LearnConfig(lr=0.002, critic_lr=0.002, minibatch=3),
        run=RunConfig(out=out, updates=UPDATES, eval_every=2, eval_instances=4, checkpoint_every=2, save_trees=1),
    )
    changes = {name: replace(getattr(config, name), **change) for name, change in changes.items()}
    return replace(config, **changes)


def trained(out, model_dir, **changes):
    """Train a short run in this process and return its folder."""
    assert start_run(short_run(out, model_dir, **changes), Path(model_dir)).run()
    return out


def records(run, name="metrics"):
    """Return the lines of a log without the clock's, after a look that they were there."""
    lines = JsonLines(run / f"{name}.jsonl").read()
    assert all(line.pop("seconds") for line in lines)
    return lines


def result(run):
    """Return all that must repeat: the logs, and every number of the last checkpoint."""
    last = checkpoints(run)[-1]
    states = {path.name: load_file(path) for path in sorted(last.glob("state-*.safetensors"))}
    for state in states.values():
        # Nobody draws torch's random numbers in a run; that a process begins with others is no difference.
        state.pop("random/cpu")
    parts = {
        name: (last / name).read_bytes() for name in ("model/model.safetensors", "gradients.json", "progress.json")
    }
    if (last / "critic.safetensors").exists():
        parts["critic"] = (last / "critic.safetensors").read_bytes()
    trees = {path.name: path.read_text().partition("\n")[2] for path in sorted((run / "trees" / last.name).glob("*"))}
    return {
        "checkpoint": last.name,
        "metrics": records(run),
        "evaluations": records(run, "evaluations"),
        "optimizers": {name: {key: value.tolist() for key, value in state.items()} for name, state in states.items()},
        "trees": trees,
        **parts,
    }


def files_of(folder):
    """Return the bytes of all files under a folder by their names."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def command(*args, hash_seed="0"):
    """Start the `tsr` command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tsr_gym", *map(str, args)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "COLUMNS": "200"},
    )


def train_flags(out, model_dir, **changes):
    flags = {**FLAGS, "--model": model_dir, "--out": out, **changes}
    return ["train", "sokoban", *[str(part) for flag in flags.items() for part in flag]]


def finish(process):
    """Return a process's exit status and what it wrote."""
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def wait_for(runs, happened, timeout=60):
    """Wait until something has happened or a process runs no more."""
    end = time.monotonic() + timeout
    while time.monotonic() < end and runs() and not happened():
        time.sleep(0.002)


# A fork of a server that has everything imported costs a fraction of a new process.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tsr_gym.agents.runs.trainer", "transformers.models.qwen2.modeling_qwen2"])


def train_and_kill(args, run, updates, delay):
    """Run `tsr` in a process of its own and kill it without warning; return whether it was still running.

    Args:
        args: Of the command.
        run: Folder of the run.
        updates: Lines of the log to wait for, counted from the beginning of the run.
        delay: Seconds to wait after that.
    """
    began = boards(run)
    process = FORKS.Process(target=main, args=(list(map(str, args)),))
    process.start()
    wait_for(process.is_alive, lambda: boards(run) > began and lines(run) >= updates)
    time.sleep(delay)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def boards(run):
    """Return how many processes have begun to train in a folder: each opens a TensorBoard file when it does."""
    return len(list((run / "tensorboard").glob("*")))


def lines(run):
    """Return how many updates a run has logged."""
    log = run / "metrics.jsonl"
    return log.read_text().count("\n") if log.exists() else 0
