"""Short training runs, the parts of them that must repeat, and processes that train together."""

import gzip
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.distributed import TCPStore

from tests.conftest import ROOT
from tsr_gym.agents.cli import main
from tsr_gym.agents.config import RunConfig, TrainConfig
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.lessons.settings import LessonConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.processes import joined
from tsr_gym.agents.runs.log import JsonLines
from tsr_gym.agents.runs.progress import checkpoints
from tsr_gym.agents.runs.trainer import start_run

UPDATES = 5
FLAGS = {
    "--groups": 2, "--trajectories": 3, "--filter": "none", "--max-tokens": 6, "--lr": 0.002, "--critic-lr": 0.002,
    "--minibatch": 3, "--updates": UPDATES, "--eval-every": 2, "--eval-instances": 4, "--checkpoint-every": 2,
    "--save-trees": 1,
}  # fmt: skip


def short_run(out, model_dir, **changes):
    """Return the configuration of a short run on Sokoban, equal to `FLAGS`; changes are given by section."""
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
    """Return the lines of a log without their seconds, after checking that they had them."""
    lines = JsonLines(run / f"{name}.jsonl").read()
    assert all(line.pop("seconds") for line in lines)
    return lines


def result(run):
    """Return everything that must repeat: the logs, and every number of the last checkpoint."""
    last = checkpoints(run)[-1]
    states = {path.name: load_file(path) for path in sorted(last.glob("state-*.safetensors"))}
    for state in states.values():
        # A run draws no random numbers from torch, and processes may begin with different ones.
        state.pop("random/cpu")
    parts = {
        name: (last / name).read_bytes() for name in ("model/model.safetensors", "gradients.json", "progress.json")
    }
    if (last / "critic.safetensors").exists():
        parts["critic"] = (last / "critic.safetensors").read_bytes()
    trees = {
        path.name: gzip.decompress(path.read_bytes()).decode().partition("\n")[2]
        for path in sorted((run / "trees" / last.name).glob("*"))
    }
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
    """Start the `tsr` command in a separate process."""
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
    """Return a process's exit status and its output."""
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def wait_for(runs, happened, timeout=60):
    """Wait until something has happened or a process has ended."""
    end = time.monotonic() + timeout
    while time.monotonic() < end and runs() and not happened():
        time.sleep(0.002)


# A fork of a server with all imports done costs a fraction of a new process.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tsr_gym.agents.runs.trainer", "transformers.models.qwen2.modeling_qwen2"])


def train_and_kill(args, run, updates, delay):
    """Run `tsr` in a separate process and kill it without warning; return whether it was still running.

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
    """Return the number of processes that have begun to train in a folder: each opens a TensorBoard file."""
    return len(list((run / "tensorboard").glob("*")))


def lines(run):
    """Return the number of updates that a run has logged."""
    log = run / "metrics.jsonl"
    return log.read_text().count("\n") if log.exists() else 0


# Far longer than any test takes, also on a busy machine.
WAIT = timedelta(seconds=120)


def together(size, work, *args, joins=True, until=None):
    """Call `work(processes, *args)` in each of some processes and return their results, in the order of ranks.

    They are forks of a server with all imports done, with the environment that torchrun gives. An error in any of them,
    and a process that ends without an answer, fails the test. All are ended at the end.

    Args:
        size: Number of processes.
        work: A function of a module.
        args: Its other arguments.
        joins: Whether to join the processes before the call; otherwise `work` gets None and joins them itself.
        until: The last rank whose answer is awaited; None for all.
    """
    # Port 0 is any free port; the store lives in this process, as with torchrun.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes, running = [], []
    for rank in range(size):
        here, there = FORKS.Pipe(duplex=False)
        args_of_work = (surroundings(rank, size, store.port), joins, there, work, args)
        running.append(FORKS.Process(target=_work, args=args_of_work, daemon=True))
        running[-1].start()
        there.close()
        pipes.append(here)
    try:
        answers = [_answer_of(rank, pipe) for rank, pipe in enumerate(pipes[: until if until is None else until + 1])]
    finally:
        for process in running:
            process.kill()
            process.join()
    failed = [error for _, error in answers if error is not None]
    assert not failed, "\n".join(failed)
    return [result for result, _ in answers]


def surroundings(rank, size, port):
    """Return the environment variables of a process, as torchrun sets them."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def _answer_of(rank, pipe):
    try:
        hangs = not pipe.poll(WAIT.total_seconds())
        return (None, f"process {rank} hangs") if hangs else pickle.loads(pipe.recv_bytes())
    except EOFError:
        return None, f"process {rank} ended without an answer"


def _work(variables, joins, pipe, work, args):
    os.environ |= variables
    torch.set_num_threads(1)
    try:
        with joined(wait=WAIT) if joins else nullcontext() as processes:
            answer = work(processes, *args), None
    except BaseException:
        answer = None, traceback.format_exc()
    # As bytes, because tensors would be shared in the memory of a process that ends.
    pipe.send_bytes(pickle.dumps(answer))
