"""The parts of a run: a host that samples, the rater with PPO's own critic, adapter, value head and reference."""

import copy
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.agents.short_runs import UPDATES, records, result, short_run, trained
from tsr_gym import ConfigError, EngineFailed, MissingExtra
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.learning.settings import Objective
from tsr_gym.agents.models import language_model as hosts
from tsr_gym.agents.models.language_model import load_policy, pick_device
from tsr_gym.agents.models.lora import adapted_layers, base_weights
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.engine import Capabilities
from tsr_gym.agents.policies.transformers_engine import TransformersEngine
from tsr_gym.agents.policies.vllm_engine import VllmEngine
from tsr_gym.agents.probing.calibrate import CalibrationConfig, calibrate_env
from tsr_gym.agents.processes import Processes
from tsr_gym.agents.raters import make_rater
from tsr_gym.agents.runs.check import check_start
from tsr_gym.agents.runs.loop import Trainer
from tsr_gym.agents.runs.parity import hand_over
from tsr_gym.agents.runs.progress import checkpoints
from tsr_gym.agents.runs.trainer import resume_run, start_run
from tsr_gym.agents.runs.workers.on_ray import WorkerConfig

SHORT = {"run": {"updates": 2, "eval_every": 1, "eval_instances": 2}}
SERVER = {"engine": "vllm-server", "engine_url": "http://127.0.0.1:9"}


class Copied:
    """A host that samples by transformers from its own copy of a model."""

    capabilities = Capabilities()

    def __init__(self, model):
        self.inner = TransformersEngine(copy.deepcopy(model), stop_ids=[0])
        self.context = self.inner.context
        self.vocabulary = model.config.vocab_size
        self.updates = []

    def engine(self, *, stop_ids, max_tokens, temperature):
        return VllmEngine(self, tuple(stop_ids), max_tokens=max_tokens, temperature=temperature)

    @property
    def weight_version(self):
        return self.inner.weight_version

    def sample(self, asked, settings):
        stops, temperature = settings["stop_token_ids"], settings["temperature"]
        engine = TransformersEngine(self.inner.model, stop_ids=stops, temperature=temperature)
        limit = max(request.max_tokens for request in asked)
        prompts, seeds = [request.prompt for request in asked], [[request.seed] for request in asked]
        rows = engine.generate(prompts, seeds=seeds, max_tokens=limit)
        return [row[0]._replace(weight_version=self.weight_version) for row in rows]

    def load_weights(self, weights, *, version=None):
        given = list(weights)
        self.updates.append((version, len(given)))
        self.inner.load_weights(given, version=version)


@pytest.fixture
def hosted(base_model, monkeypatch):
    """Start short runs that sample from such a host."""
    model = load_policy(base_model, device=pick_device("cpu")).model
    monkeypatch.setattr(hosts, "sampling_host", lambda config, folder: Copied(model))
    return lambda out, **changes: start_run(short_run(out, base_model, model=SERVER, **(SHORT | changes)), base_model)


def test_a_run_that_samples_from_a_host_equals_one_that_samples_from_the_model(hosted, base_model, tmp_path):
    trainer = hosted(tmp_path / "hosted")
    assert trainer.run()
    trained(tmp_path / "plain", base_model, **SHORT)
    for name in ("metrics", "evaluations"):
        for own, other in zip(records(tmp_path / "hosted", name), records(tmp_path / "plain", name), strict=True):
            assert own.keys() == other.keys()
            numbers = {key for key, value in own.items() if isinstance(value, float)}
            assert {key: own[key] for key in own.keys() - numbers} == {key: other[key] for key in own.keys() - numbers}
            wanted = {key: other[key] for key in numbers}
            assert {key: own[key] for key in numbers} == pytest.approx(wanted, rel=1e-2, abs=1e-4)
    # Before each update and each evaluation, all parameters, the tied head too.
    count = len(trainer.parts.policy.model.state_dict())
    assert trainer.parts.host.updates == [(version, count) for version in (0, 0, 1, 1, 2)]


class Adapted(Copied):
    """A host that keeps its weights and adds the low-rank matrices that it is given."""

    def load_adapter(self, folder, *, version):
        settings = json.loads((folder / "adapter_config.json").read_text())
        matrices = load_file(folder / "adapter_model.safetensors")
        weights = dict(self.plain)
        for name in {name.partition(".lora_")[0] for name in matrices}:
            up, down = (matrices[f"{name}.lora_{part}.weight"] for part in "BA")
            own = f"{name.removeprefix('base_model.model.')}.weight"
            weights[own] = weights[own] + settings["lora_alpha"] / settings["r"] * up @ down
        self.updates.append((version, len(matrices)))
        self.inner.load_weights(weights.items(), version=version)


def test_a_run_hands_over_only_its_matrices_also_when_it_is_resumed(base_model, tmp_path, monkeypatch):
    def host(config, model, lora_rank):
        # The matrices belong to these weights, and not to the merged weights of a checkpoint.
        made = Adapted(load_policy(base_model, device=pick_device("cpu")).model)
        made.plain = {name: value.clone() for name, value in base_weights(model)}
        return made

    monkeypatch.setattr(hosts, "adapter_host", host)
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda package: True)
    lora = {"learn": {"lora_rank": 2, "lora_engine": "adapter", "lr": 0.01}}
    trainer = start_run(short_run(tmp_path / "run", base_model, model={"engine": "vllm"}, **SHORT, **lora), base_model)
    count = 2 * len(adapted_layers(trainer.parts.policy.model))
    # Each time the probe compares the host with the learner.
    assert trainer.run()
    assert trainer.parts.host.updates == [(version, count) for version in (0, 0, 1, 1, 2)]
    more = resume_run(tmp_path / "run", updates=3)
    assert more.run()
    plain = load_policy(base_model, device=pick_device("cpu")).model.state_dict()
    assert all(torch.equal(more.parts.host.plain[name], value) for name, value in plain.items())


def test_a_host_that_misses_an_update_ends_the_run(hosted, tmp_path):
    trainer = hosted(tmp_path / "run", learn={"lr": 0.05})
    take = trainer.parts.host.load_weights
    trainer.parts.host.load_weights = lambda weights, *, version=None: take((), version=version)
    with pytest.raises(EngineFailed, match="log-probability"):
        trainer.run()


def test_a_player_hands_its_weights_over_before_it_plays(base_model):
    policy = load_policy(base_model, device=pick_device("cpu"))
    other = copy.deepcopy(policy.model)
    for parameter in other.parameters():
        parameter.data.mul_(1.1)
    player = ModelPlayer("sokoban", TaskConfig(), ModelConfig(), policy, Copied(other))
    hand_over(player)
    assert player.host.updates == [(0, len(policy.model.state_dict()))]
    player.host.load_weights = lambda weights, *, version=None: player.host.inner.model.lm_head.weight.data.mul_(1.5)
    with pytest.raises(EngineFailed, match="log-probability"):
        hand_over(player)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"processes": Processes(0, 2)}, "several processes sample by engine transformers.*got vllm-server"),
        ({"workers": WorkerConfig(ray="local")}, "wanted transformers or vllm, got vllm-server"),
    ],
)
def test_several_processes_and_workers_share_no_server(base_model, tmp_path, others, words):
    config = short_run(tmp_path / "run", base_model, model=SERVER)
    with pytest.raises(ConfigError, match=words):
        Trainer(config, tmp_path / "run", base_model, **others)


def test_a_run_with_vllm_is_refused_at_once_if_it_is_not_installed(base_model, tmp_path, monkeypatch):
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=r"tsr-gym\[vllm\]"):
        check_start(short_run(tmp_path / "run", base_model, model={"engine": "vllm"}))
    check_start(short_run(tmp_path / "run", base_model, model=SERVER))


def test_a_rater_uses_the_runs_own_critic_also_as_a_part_of_a_sum(base_model, tmp_path):
    rater = "WeightedRater(parts={'own': ('CriticValue', 1.0)})"
    search = {"search": "beam(width=1, branching=2)", "rater": rater}
    trainer = start_run(short_run(tmp_path / "run", base_model, search=search), base_model)
    assert trainer.parts.collector.rater.raters["own"].critic is trainer.parts.learner.critic is not None


def test_a_rater_needs_a_critic_that_is_whole_and_named_and_random_play_has_no_engine(base_model, tmp_path):
    search = {"search": "beam", "rater": "CriticValue"}
    for learn, fact in (
        ({"algorithm": "grpo"}, "algorithm=ppo"),
        ({"offload": True}, "spread or offloaded rates no searches"),
    ):
        with pytest.raises(ConfigError, match=fact):
            start_run(short_run(tmp_path / "run", base_model, search=search, learn=learn), base_model)
    with pytest.raises(ConfigError, match=r"wanted CriticValue\(critic='FOLDER'\)"):
        make_rater("CriticValue", chat="a policy")
    with pytest.raises(ConfigError, match="--engine vllm"):
        calibrate_env(CalibrationConfig(env="frozen_lake", engine="vllm"))


LORA = {"lora_rank": 4}
HEAD = {"critic": "head", "critic_gradient": 0.1}
KL = {"algorithm": "grpo", "objective": Objective(kl_weight=0.1)}


@pytest.mark.parametrize(
    "learn",
    [LORA | HEAD, KL, *(pytest.param(learn, marks=pytest.mark.deep) for learn in (LORA, HEAD, LORA | KL))],
    ids=["lora and head", "kl", "lora", "head", "lora and kl"],
)
def test_a_run_with_adapter_head_or_reference_resumes_bit_for_bit(base_model, tmp_path, learn):
    learn = {"lr": 0.002, **learn}
    whole = trained(tmp_path / "whole", base_model, learn=learn)
    half = trained(tmp_path / "half", base_model, learn=learn, run={"updates": 2})
    assert resume_run(half, updates=UPDATES).run()
    assert result(half) == result(whole)
    if "lora_rank" in learn:
        first, second = (checkpoints(run)[-1] / "model" / "lora" / "adapter_model.safetensors" for run in (whole, half))
        assert first.read_bytes() == second.read_bytes()


def test_an_adapter_belongs_to_the_model_that_it_names_after_several_resumes(base_model, tmp_path):
    import peft

    learn = {"algorithm": "grpo", "lr": 0.05, **LORA}
    run = trained(tmp_path / "run", base_model, learn=learn, run={"updates": 1, "eval_every": 0, "keep_checkpoints": 1})
    for updates in (2, 3):
        assert resume_run(run, updates=updates).run()
    (last,) = checkpoints(run)
    adapter = last / "model" / "lora"
    named = Path(json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"])
    assert named == base_model
    merged, plain = (load_policy(folder, device=torch.device("cpu")).model for folder in (last / "model", named))
    ids = torch.arange(1, 30).reshape(1, -1)
    with torch.no_grad():
        wanted, began = merged(input_ids=ids).logits, plain(input_ids=ids).logits
        adapted = peft.PeftModel.from_pretrained(plain, adapter)(input_ids=ids).logits
    torch.testing.assert_close(adapted, wanted, rtol=1e-4, atol=1e-4)
    assert (wanted - began).abs().max() > 0.01


def test_evaluations_compute_no_scores(tmp_path, base_model):
    config = short_run(tmp_path / "run", base_model, task={"score": "SokobanScore(potential='estimate')"}, **SHORT)
    parts = start_run(config, base_model).parts
    assert parts.collector.pool.made_with != parts.held_out.pool.made_with
    assert parts.held_out.pool.score == "reward"
