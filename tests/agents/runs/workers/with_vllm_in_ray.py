"""The real vLLM in workers of a real Ray: each with its own engine and weights. `make test-vllm` runs it."""

import os
import signal
import subprocess
import sys

import pytest

from tests.agents.cli.with_vllm import SMALL
from tests.agents.runs.workers.ray_here import SEARCH, cluster, faults_in, faulty, make_workers_by, nodes_of, on, train
from tests.agents.short_runs import records, result, train_flags
from tests.conftest import ROOT
from tsr_gym.agents.runs.trainer import resume_run
from tsr_gym.agents.runs.workers.on_ray import WorkerConfig, connected
from tsr_gym.agents.teaching.base_model import build_base_model
from tsr_gym.errors import ConfigError

for package in ("ray", "vllm"):
    pytest.importorskip(package, reason="needs ray and vllm: make test-vllm")
RUN = {"updates": 2, "eval_every": 1, "eval_instances": 5}
VLLM = {"model": {"engine": "vllm", "engine_gib": 0.25, "max_tokens": 6}, "run": RUN}
EXACT = ("step", "success", "reward_mean", "trajectories", "groups_kept", "sampled_tokens", "env_steps")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "model"
    build_base_model("sokoban", folder, SMALL)
    return folder


@pytest.fixture(scope="module")
def here():
    """The address of a cluster with which this process is connected."""
    with cluster(4) as made, connected(WorkerConfig(ray=made.address)):
        yield made.address


def by_vllm(out, base, **settings):
    """Train a short run whose engine is vLLM and return its result."""
    return train(out, base, **{**VLLM, **settings})


@pytest.fixture(scope="module")
def by_one(here, base, tmp_path_factory):
    """The result of a short run with one worker without faults."""
    return by_vllm(tmp_path_factory.mktemp("one") / "run", base, workers=on(here, ray_workers=1, ray_patience=400))


def patient(address, **changes):
    return on(address, **{"ray_workers": 1, "ray_patience": 400, **changes})


def test_one_worker_does_what_vllm_in_this_process_does(by_one, base, tmp_path):
    trained = by_vllm(tmp_path / "run", base)
    assert trained["evaluations"] == by_one["evaluations"]
    assert trained == by_one


def test_two_workers_sample_the_same_tokens_with_engines_of_their_own(here, by_one, base, tmp_path):
    trained = by_vllm(tmp_path / "run", base, workers=patient(here, ray_workers=2))
    assert trained["evaluations"] == by_one["evaluations"]
    for line, other in zip(trained["metrics"], by_one["metrics"], strict=True):
        assert {name: line[name] for name in EXACT} == {name: other[name] for name in EXACT}
    assert tokens_in(trained) == tokens_in(by_one)


def tokens_in(trained):
    """Return the tokens and the version of the weights of every node."""
    nodes = [node for grown in nodes_of(trained["trees"]).values() for node in grown if node["parent"] is not None]
    return [(node["candidate"][-3], node["candidate"][-1]) for node in nodes]


def test_an_engine_that_was_killed_gets_the_weights_again_before_it_samples(here, by_one, base, tmp_path):
    def kill(made, event, record):
        if (event, record["step"]) == ("update", 1):
            os.kill(made.parts.remote.crew.where(0)[0], signal.SIGKILL)

    trained = by_vllm(tmp_path / "run", base, workers=patient(here), watch=kill)
    assert faults_in(trained) == {"lost": 1}
    assert trained == by_one


@pytest.mark.parametrize("fault", ["stale", "secretly stale"])
def test_an_engine_that_keeps_its_first_weights_is_refused(here, by_one, base, tmp_path, monkeypatch, fault):
    make_workers_by(faulty(fault, tmp_path), monkeypatch)
    trained = by_vllm(tmp_path / "run", base, workers=patient(here))
    assert faults_in(trained) == {"refused": 1}
    assert trained == by_one


def test_searching_ahead_stale_engines_are_refused_by_one_that_was_compared(here, base, tmp_path, monkeypatch):
    ahead = {"run": {"updates": 3, "eval_every": 0, "overlap": True, "checkpoint_every": 10}}
    expected = by_vllm(tmp_path / "plain", base, **ahead)
    make_workers_by(faulty("secretly stale", tmp_path), monkeypatch)
    trained = by_vllm(tmp_path / "run", base, workers=patient(here), **ahead)
    assert [line["weights_behind"] for line in trained["metrics"]] == [0, 1, 1]
    assert faults_in(trained) == {"refused": 1}
    assert trained == expected


def test_low_rank_matrices_go_to_workers_as_adapters_and_again_where_one_was_killed(here, base, tmp_path):
    adapters = {"learn": {"lora_rank": 2, "lora_engine": "adapter", "lr": 0.01, "minibatch": 3}}
    expected = by_vllm(tmp_path / "plain", base, **adapters)

    def kill(made, event, record):
        if (event, record["step"]) == ("update", 1):
            os.kill(made.parts.remote.crew.where(0)[0], signal.SIGKILL)

    trained = by_vllm(tmp_path / "run", base, workers=patient(here), watch=kill, **adapters)
    assert faults_in(trained) == {"lost": 1}
    assert trained == expected
    assert resume_run(tmp_path / "run", updates=3, workers=patient(here)).run()
    assert [line["step"] for line in records(tmp_path / "run")] == [1, 2, 3]


def test_a_model_that_vllm_cannot_compute_ends_the_run_with_the_reason(here, base_model, tmp_path):
    with pytest.raises(ConfigError, match="attention heads are 16 wide"):
        by_vllm(tmp_path / "run", base_model, workers=patient(here))


def test_two_learning_processes_have_a_worker_with_vllm_each(here, by_one, base, tmp_path):
    own = {"--updates": 2, "--eval-every": 1, "--eval-instances": 5, "--search": SEARCH["search"], "--groups": 3}
    own |= {"--trajectories": 2, "--engine": "vllm", "--engine-gib": 0.25, "--ray": here, "--ray-workers": 2}
    flags = train_flags(tmp_path / "run", base, **own)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, "-m", "tsr_gym", *flags], cwd=ROOT, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr
    trained = result(tmp_path / "run")
    for line, other in zip(trained["metrics"], by_one["metrics"], strict=True):
        assert {name: line[name] for name in EXACT} == {name: other[name] for name in EXACT}
    assert trained["evaluations"] == by_one["evaluations"]
