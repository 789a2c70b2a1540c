"""`tsr train`, `tsr eval` and `tsr calibrate` with the real vLLM; `make test-vllm` runs it."""

import json
import tomllib
from dataclasses import replace

import pytest

from tests.agents.short_runs import records, short_run
from tsr_gym.agents.cli import main
from tsr_gym.agents.policies.vllm_server import VllmServer
from tsr_gym.agents.runs.progress import checkpoints
from tsr_gym.agents.runs.trainer import resume_run, start_run
from tsr_gym.agents.teaching.base_model import build_base_model
from tsr_gym.agents.teaching.base_recipe import BaseRecipe
from tsr_gym.errors import EngineFailed

# Four heads 32 wide, the least that vLLM computes on a CPU; hardly trained.
SMALL = BaseRecipe(
    hidden=128, layers=1, steps=30, instances=30, episodes=2, poor_steps=0, validations=8, band=(0.0, 1.0)
)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "model"
    build_base_model("sokoban", folder, SMALL)
    return folder


@pytest.fixture(scope="module")
def server(base):
    server = VllmServer(base, cache_gib=0.25)
    yield server
    server.close()


def trained(out, base, engine, learn=None, **model):
    """Train two updates by a beam search, which asks for samples of many nodes at a time; return the trainer."""
    search = {"search": "beam(width=2, branching=3)", "groups": 2, "trajectories": 2}
    run = {"updates": 2, "eval_every": 1, "eval_instances": 2, "checkpoint_every": 1}
    model = {"engine": engine, "engine_gib": 0.25, **model}
    config = short_run(out, base, model=model, search=search, run=run, learn=learn or {})
    trainer = start_run(config, base)
    assert trainer.run()
    return trainer


def test_a_run_samples_by_vllm_in_this_process_and_goes_on(base, tmp_path):
    trainer = trained(tmp_path / "run", base, "vllm")
    assert trainer.parts.host.weight_version == 2
    assert [one["step"] for one in records(tmp_path / "run")] == [1, 2]
    trainer.parts.host.close()
    more = resume_run(tmp_path / "run", updates=3)
    assert more.run()
    assert more.host.weight_version == 3
    assert tomllib.loads((tmp_path / "run" / "run.toml").read_text())["model"]["engine"] == "vllm"
    # A head that stays behind ends the run, with a checkpoint of what was learned.
    more.progress = replace(more.progress, update=2)
    take = more.host.load_weights
    more.host.load_weights = lambda weights, *, version=None: take((), version=version)
    with pytest.raises(EngineFailed, match="log-probability"):
        more.run()
    assert checkpoints(tmp_path / "run")
    more.host.close()


def test_a_run_hands_over_adapters_and_goes_on_beside_the_weights_that_it_began_with(base, tmp_path):
    # Every update is proven by the probe; a model with merged matrices would have them twice.
    learn = {"lora_rank": 2, "lora_engine": "adapter", "lr": 0.01}
    trainer = trained(tmp_path / "run", base, "vllm", learn)
    assert trainer.parts.host.weight_version == 2
    trainer.parts.host.close()
    more = resume_run(tmp_path / "run", updates=3)
    assert more.run()
    assert more.host.weight_version == 3
    more.host.close()


def test_a_run_samples_by_a_server_of_vllm_with_lora(base, server, tmp_path):
    out = tmp_path / "run"
    flags = {"--engine": "vllm-server", "--engine-url": server.url, "--model": base, "--out": out, "--lora-rank": 2}
    flags |= {"--groups": 2, "--trajectories": 2, "--filter": "none", "--max-tokens": 6, "--updates": 2, "--lr": 0.01}
    flags |= {"--eval-instances": 2, "--search": "best_of_n", "--n": 2, "--algorithm": "grpo"}
    assert main(["train", "sokoban", *[str(part) for flag in flags.items() for part in flag]]) == 0
    assert [one["step"] for one in records(out)] == [1, 2]


@pytest.mark.parametrize("engine", ["vllm-server"])
def test_a_model_is_evaluated_and_a_score_calibrated(base, server, engine, capsys):
    at = ["--engine", engine, "--engine-url", server.url]
    assert main(["eval", str(base), "--instances", "2", "--json", *at]) == 0
    assert json.loads(capsys.readouterr().out)["evaluation"]["turns"] > 0
    scored = ["--score", "SokobanScore", "--instances", "1", "--budgets", "2", "--widths", "1", "--candidates", "2"]
    assert main(["calibrate", "sokoban", "--model", str(base), *scored, *at]) == 0
    assert "beam" in capsys.readouterr().out


def test_the_same_server_is_asked_by_openais_api(server, capsys):
    asked = ["--engine", "openai", "--base-url", f"{server.url}/v1", "--model", "policy", "--max-tokens", "8"]
    asked += ["--prompt", "compact", "--history", "markov"]
    assert main(["eval", "sokoban", *asked, "--instances", "2", "--json"]) == 0
    ledger = json.loads(capsys.readouterr().out)["ledger"]
    assert ledger["failed"] == ledger["malformed"] == 0
    assert ledger["requests"] > 0
    assert ledger["sampled_tokens"] > 0
