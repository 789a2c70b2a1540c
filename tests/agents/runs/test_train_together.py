"""Runs of two processes: they do what one does, and where one is killed, the other says so, and others go on."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from tests.agents.short_runs import UPDATES, records, short_run, together, train_flags, wait_for
from tests.conftest import ROOT
from tsr_gym import PromptTooLong
from tsr_gym.agents.runs.checkpoint import checkpoints
from tsr_gym.agents.runs.trainer import resume_run, start_run


def train(processes, config, model_dir, asked=None):
    """Train, and return what this process was told; the process `asked` wishes to stop after each update."""
    told = []
    trainer = start_run(config, model_dir, processes)
    finished = trainer.run(
        watch=lambda kind, record: told.append((kind, record["step"])), stop=lambda: processes.rank == asked
    )
    return finished, told


def go_on(processes, run):
    return resume_run(run, processes=processes).run()


def weights(run):
    last = checkpoints(run)[-1]
    assert last.name == f"{UPDATES:06d}"
    return {**load_file(last / "model" / "model.safetensors"), **load_file(last / "critic.safetensors")}


def check_alike(run, other):
    """Check that two runs sampled the same and learned the same up to rounding."""
    for name in ("metrics", "evaluations"):
        for one, two in zip(records(run, name), records(other, name), strict=True):
            assert one.keys() == two.keys()
            for key, value in two.items():
                assert one[key] == (pytest.approx(value, rel=1e-3, abs=1e-4) if isinstance(value, float) else value), (
                    key
                )
    ours, theirs = weights(run), weights(other)
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)


def test_two_processes_make_the_run_that_one_makes_and_only_the_first_one_writes(undisturbed, base_model, tmp_path):
    run = tmp_path / "run"
    (finished, told), (also_finished, untold) = together(2, train, short_run(run, base_model), base_model)
    assert finished
    assert also_finished
    assert [step for kind, step in told if kind == "update"] == list(range(1, UPDATES + 1))
    assert untold == []
    check_alike(run, undisturbed)
    assert len(list((run / "tensorboard").iterdir())) == 1
    assert {path.name for path in run.iterdir()} == {path.name for path in undisturbed.iterdir()}


def test_a_wish_to_stop_in_one_process_stops_all_and_one_process_goes_on_alone(undisturbed, base_model, tmp_path):
    run = tmp_path / "run"
    assert [finished for finished, _ in together(2, train, short_run(run, base_model), base_model, 1)] == [False, False]
    assert [path.name for path in checkpoints(run)] == ["000000", "000001"]
    assert resume_run(run).run()
    check_alike(run, undisturbed)


def outgrow(processes, config, model_dir):
    """Train where the searches of one process grow too long in the second update, and return what all are told."""
    trainer = start_run(config, model_dir, processes)
    real = trainer.parts.collector.collect

    def collect(first, count, starts, **settings):
        if processes.rank == 1 and trainer.progress.update == 1:
            raise PromptTooLong("too long here")
        return real(first, count, starts, **settings)

    trainer.parts.collector.collect = collect
    try:
        trainer.run()
    except PromptTooLong as error:
        return str(error)


def test_what_fails_in_one_process_ends_all_with_the_same_error_and_a_checkpoint(base_model, tmp_path):
    run = tmp_path / "run"
    assert together(2, outgrow, short_run(run, base_model), base_model) == ["too long here"] * 2
    assert checkpoints(run)[-1].name == "000001"


def torchrun(log, *args):
    """Start the `tsr` command in two processes that torchrun looks after; what they say goes into a folder."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--log-dir", str(log), "--redirects", "3", "-m", "tsr_gym", *map(str, args)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
    )


def workers(process):
    """Return the ids of the processes that torchrun started, by rank."""
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=True
    )
    found = {}
    for pid in map(int, children.stdout.split()):
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(part.partition(b"=")[::2] for part in file.read().split(b"\0"))
        if b"RANK" in variables:
            found[int(variables[b"RANK"])] = pid
    return found


@pytest.mark.deep
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="finds processes in /proc")
@pytest.mark.parametrize("victim", [0, 1])
def test_killing_one_of_two_ends_the_other_with_a_clear_error_and_any_number_goes_on(
    undisturbed, base_model, tmp_path, victim
):
    run, log = tmp_path / "run", tmp_path / "log"
    flags = {"--updates": 500, "--checkpoint-every": 2, "--eval-every": 0}
    process = torchrun(log, *train_flags(run, base_model, **flags))
    try:
        wait_for(lambda: process.poll() is None, lambda: len(checkpoints(run)) > 1, timeout=300)
        began = time.monotonic()
        os.kill(workers(process)[victim], signal.SIGKILL)
        assert process.wait(timeout=120) != 0
        seconds = time.monotonic() - began
    finally:
        process.terminate()
        process.wait(timeout=60)
    said = [path.read_text() for path in log.rglob(f"{1 - victim}/stderr.log")]
    assert len(said) == 1
    assert f"tsr train: process {1 - victim} of 2: another process of this run has ended" in said[0]
    assert "go on from the last checkpoint with tsr train --resume FOLDER" in said[0]
    assert "Traceback" not in said[0]
    assert seconds < 60
    # What is there is whole; two go on, and then one.
    config = tomllib.loads((run / "run.toml").read_text())
    done = int(checkpoints(run)[-1].name)
    assert done >= 2
    for updates, size in ((done + 2, 2), (done + 4, 1)):
        config["run"]["updates"] = updates
        (run / "run.toml").write_text(json.dumps(config))
        assert (together(2, go_on, run) if size == 2 else [resume_run(run).run()]) == [True] * size
        assert checkpoints(run)[-1].name == f"{updates:06d}"
    assert [record["step"] for record in records(run)] == list(range(1, done + 5))


@pytest.mark.deep
def test_two_processes_save_memory_on_the_cpu_as_well(undisturbed, base_model, tmp_path):
    config = short_run(tmp_path / "run", base_model)
    config = replace(config, learn=replace(config.learn, offload=True))
    together(2, train, config, base_model)
    check_alike(tmp_path / "run", undisturbed)


@pytest.mark.deep
def test_a_process_without_an_instance_learns_with_the_others(base_model, tmp_path):
    config = short_run(tmp_path / "run", base_model, search={"groups": 1})
    together(2, train, config, base_model)
    alone = start_run(short_run(tmp_path / "alone", base_model, search={"groups": 1}), base_model)
    assert alone.run()
    check_alike(tmp_path / "run", tmp_path / "alone")
