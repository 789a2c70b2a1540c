"""The rollout worker in TRL 1.16.0's AsyncGRPOTrainer; `make test-trl` runs it where TRL is installed.

The trainer's attention is a kernel for GPUs. Here the same attention over the same indices is written in torch, and the
speed of the GPU is a constant. Everything else is TRL's: its queue, its packing of trees, its loss, and the time
when it passes weights.
"""

from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("trl", reason="needs TRL: make test-trl")

from tests.agents.tiny import save_chat_model
from tsr_gym.agents.bridges.trl import task_prompts
from tsr_gym.agents.bridges.trl_worker import AsyncRow, TsrRolloutWorker
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.models.language_model import load_policy
from tsr_gym.agents.models.settings import ModelConfig

SHARED = {
    "use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no", "logging_steps": 1,
    "gradient_checkpointing": False,
}  # fmt: skip
WORLD = "tests.agents.bridges.helpers:tests/Counting-v0"
STEPS, ROWS = 3, 16


def attention_of_segments(
    query, key, value, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *, softmax_scale, causal, window_size
):
    """Return the result of `flash_attn_varlen_func`: each segment's queries are the last of its keys."""
    assert causal
    assert window_size == (-1, -1)
    parts = []
    for number in range(len(cu_seqlens_q) - 1):
        own = query[cu_seqlens_q[number] : cu_seqlens_q[number + 1]].transpose(0, 1)
        seen = slice(int(cu_seqlens_k[number]), int(cu_seqlens_k[number + 1]))
        repeats = query.shape[1] // key.shape[1]
        keys, values = (tensor[seen].repeat_interleave(repeats, dim=1).transpose(0, 1) for tensor in (key, value))
        behind = keys.shape[1] - own.shape[1]
        allowed = torch.ones(own.shape[1], keys.shape[1]).tril(behind) > 0
        weights = (own @ keys.transpose(1, 2) * softmax_scale).masked_fill(~allowed, float("-inf")).softmax(dim=-1)
        parts.append((weights @ values).transpose(0, 1))
    return torch.cat(parts)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a tiny model; and TRL's attention without its kernel."""
    from trl.experimental.async_grpo import async_grpo_trainer, packing

    # The trainer reads the memory of a GPU.
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)
    kernel = SimpleNamespace(flash_attn_varlen_func=attention_of_segments)
    monkeypatch.setattr(packing, "_flash_attn", lambda: kernel)
    return save_chat_model(tmp_path / "model")


def trained(folder, **more):
    """Train a few steps; return the trainer, its worker, and the inputs and values of its losses."""
    from datasets import Dataset
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

    policy = load_policy(folder, device=torch.device("cpu"))
    model = ModelConfig(max_tokens=6, prompt="plain")
    worker = TsrRolloutWorker(policy, WORLD, model=model, most=64, **more)
    sizes = {"max_steps": STEPS, "per_device_train_batch_size": ROWS, "token_budget": 0, "learning_rate": 1e-3}
    args = AsyncGRPOConfig(str(folder.parent / "out"), **sizes, temperature=1.0, dtype="float32", **SHARED)
    trainer = AsyncGRPOTrainer(
        str(folder),
        args=args,
        train_dataset=Dataset.from_list(task_prompts(range(100))),
        processing_class=policy.tokenizer,
        rollout_worker=worker,
        weight_transfer=worker,
    )
    seen = []
    compute = trainer.compute_loss

    def watched(model, inputs, *args, **kwargs):
        loss = compute(model, inputs, *args, **kwargs)
        seen.append((inputs, loss.detach().clone()))
        return loss

    trainer.compute_loss = watched
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    trainer.train()
    pairs = zip(trainer.model.parameters(), before, strict=True)
    moved = max(float((now - was).detach().abs().max()) for now, was in pairs)
    return trainer, worker, seen, moved


def test_a_row_has_the_fields_of_trls_own():
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    assert AsyncRow._fields == tuple(field.name for field in fields(RolloutSample))


@pytest.mark.parametrize(
    ("estimator", "learn_from"), [("grpo", "auto"), ("tree_backup", "leaves")], ids=["trajectories", "trees"]
)
def test_three_steps_of_asynchronous_grpo_with_beam_search(folder, estimator, learn_from):
    search = SearchConfig(search="beam(width=2, branching=2)", trajectories=4, groups=2, learn_from=learn_from)
    trainer, worker, seen, moved = trained(folder, search=search, estimator=estimator)
    lines = [line for line in trainer.state.log_history if "loss" in line]
    assert len(lines) == STEPS
    assert all(abs(line["loss"]) < float("inf") for line in lines)
    assert moved > 1e-5
    # With the weights that sampled, every ratio is 1: masks and log-probabilities are those of the trainer.
    inputs, loss = seen[0]
    sampled = inputs["token_index"] >= 0
    assert lines[0]["ratio"] == pytest.approx(1.0, abs=1e-3)
    assert lines[0]["kl"] == pytest.approx(0.0, abs=1e-4)
    assert float(loss) == pytest.approx(-float(inputs["advantages"][sampled].mean()), abs=1e-3)
    assert inputs["advantages"][sampled].abs().max() > 0.1
    # The worker received the trainer's weights as often as the trainer counted.
    assert worker.model_version == trainer.model_version >= STEPS
    own = dict(worker.collector.policy.engine.model.named_parameters())
    for name, parameter in trainer.model.named_parameters():
        assert torch.equal(own[name], parameter)
