"""RolloutWorker: its results equal those of this process with the weights that it took last, with every engine."""

import copy
from pathlib import Path

import pytest
import torch

from tests.agents.runs.test_parts import Adapted, Copied
from tests.agents.short_runs import short_run
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.play import HeldOut, examine
from tsr_gym.agents.models import language_model as hosts
from tsr_gym.agents.models.language_model import load_policy
from tsr_gym.agents.models.lora import base_weights
from tsr_gym.agents.runs.parity import ROUNDING, compare
from tsr_gym.agents.runs.workers.worker import Exam, RolloutWorker, files_of, weights_of

SEED, VERSION = 7, 3
CPU = torch.device("cpu")


@pytest.fixture
def hosted(monkeypatch):
    """Let workers sample from copies of their model; return the list of these copies."""
    made = []

    def copied(config, folder):
        if config.engine == "transformers":
            return None
        made.append(Copied(load_policy(folder, device=CPU).model))
        return made[-1]

    def adapted(config, model, lora_rank):
        made.append(Adapted(load_policy(Path(config.model), device=CPU).model))
        made[-1].plain = {name: value.clone() for name, value in base_weights(model)}
        return made[-1]

    monkeypatch.setattr(hosts, "sampling_host", copied)
    monkeypatch.setattr(hosts, "adapter_host", adapted)
    return made


def learner_of(config, folder):
    """Return a policy whose trained weights are no longer those of its folder."""
    policy = load_policy(folder, device=CPU, lora=config.lora)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in policy.model.parameters():
            if weight.requires_grad:
                weight.add_(0.05 * torch.randn_like(weight))
    return policy


def exam_of(config, policy):
    """Return an exam and how the policy itself passes it."""
    player = ModelPlayer(config.env, config.task.held_out, config.model, policy)
    held_out = HeldOut(player.pool(config.task.eval_split), 4)
    chat = player.chat_about(held_out.pool.base, temperature=config.run.eval_temperature)
    expected = examine(held_out.pool, chat, tasks=held_out.tasks, seed=SEED)
    return Exam(tuple(held_out.tasks), tuple(held_out.starts), SEED), expected


def played(examined):
    return [
        (group.task, [(turn.token_ids, turn.reward) for path in group.trajectories for turn in path.turns])
        for group in examined.groups
    ]


@pytest.mark.parametrize(
    ("engine", "learn"),
    [
        ("transformers", {}),
        ("vllm", {}),
        ("vllm", {"lora_rank": 2}),
        ("vllm", {"lora_rank": 2, "lora_engine": "adapter"}),
    ],
    ids=["the model itself", "a host", "a host of merged weights", "a host with adapters"],
)
def test_a_worker_samples_from_the_weights_that_it_took_last(base_model, tmp_path, hosted, engine, learn):
    config = short_run(tmp_path / "run", base_model, model={"engine": engine}, learn=learn)
    worker = RolloutWorker(config, files_of(base_model, adapter=False))
    learner = learner_of(config, base_model)
    own, (exam, expected) = copy.deepcopy(learner.model), exam_of(config, learner)
    worker.take(weights_of(learner.model), VERSION)
    for _ in range(2):
        answer = worker.work(exam)
        assert played(answer.result) == played(expected)
        assert (answer.result.forms, answer.weight_version) == (expected.forms, VERSION)
        assert {path.weight_versions for group in answer.result.groups for path in group.trajectories} == {
            frozenset({VERSION})
        }
        assert compare(answer.continuations, own, temperature=1.0).difference < ROUNDING[torch.float32]
    assert len(hosted) == (engine == "vllm")


def test_a_worker_plays_the_start_that_it_is_given(base_model, tmp_path):
    config = short_run(tmp_path / "run", base_model)
    worker = RolloutWorker(config, files_of(base_model, adapter=False))
    exam, _ = exam_of(config, load_policy(base_model, device=CPU))
    worker.take({}, 0)
    forms = worker.work(exam).result.forms
    # Another start for the same seed, as if the environment had other data.
    assert worker.work(exam._replace(starts=exam.starts[::-1])).result.forms == forms[::-1] != forms


def test_an_exam_without_instances_returns_the_continuations_of_the_fixed_prompts(base_model, tmp_path):
    config = short_run(tmp_path / "run", base_model)
    worker = RolloutWorker(config, files_of(base_model, adapter=False))
    worker.take({}, 0)
    answer = worker.work(Exam((), (), 0))
    assert answer.result.groups == ()
    assert compare(answer.continuations, worker.model, temperature=1.0).difference < ROUNDING[torch.float32]
