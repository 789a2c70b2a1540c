"""What TRL makes of given log-probabilities; `make test-trl` runs this where TRL is installed.

The numbers are recorded in ``losses/golden/trl.json``, so that the ordinary tests compare with them without TRL. Run as
a script, this file records them anew.
"""

import json
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from tests.agents.tiny import chatml_tokenizer, random_qwen2

RECORDED = Path(__file__).parent / "losses" / "golden" / "trl.json"
LONGEST = 9
GRPO = {"loss_type": "grpo"}
# TRL's settings by name; what they are in ours stands in tests/agents/learning/losses/test_published_losses.py.
CASES = {
    "grpo": GRPO,
    "bnpo": {"loss_type": "bnpo"},
    "dapo": {"loss_type": "dapo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "gspo": {**GRPO, "importance_sampling_level": "sequence", "epsilon": 0.03, "epsilon_high": 0.04},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.3},
    "two-sided clip": {"loss_type": "bnpo", "delta": 1.35},
    "kl": {"loss_type": "bnpo", "beta": 0.3, "use_bias_correction_kl": False},
    "kl corrected": {"loss_type": "bnpo", "beta": 0.3, "use_bias_correction_kl": True},
    "entropy": {"loss_type": "bnpo", "entropy_coef": 0.05},
}
BOUNDS = {"vllm_importance_sampling_clip_min": 0.8, "vllm_importance_sampling_clip_max": 1.2}
MISMATCHES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")


def shared_inputs():
    """Return rows of 7 tokens as lists: what was sampled, by whom it was likelier, and what it was worth."""
    draw = torch.Generator().manual_seed(11)

    def noise(scale):
        return scale * torch.randn(4, 7, generator=draw)

    present = torch.arange(7) < torch.tensor([[7], [5], [6], [3]])
    # The environment's tokens between two turns.
    said = present.clone()
    said[0, 3:5] = said[2, 2] = False
    old = -torch.rand(4, 7, generator=draw) * 2 - 0.1
    return {
        "present": present.int().tolist(),
        "said": said.int().tolist(),
        "old": old.tolist(),
        "now": (old + noise(0.4)).tolist(),
        "sampler": (old + noise(0.15)).tolist(),
        "reference": (old + noise(0.4)).tolist(),
        "entropy": torch.rand(4, 7, generator=draw).tolist(),
        "advantages": noise(1.0).tolist(),
        "row_advantages": torch.randn(4, generator=draw).tolist(),
    }


def grpo_trainer(folder, *, beta=0.0, **settings):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    common = {"epsilon": 0.2, "epsilon_high": 0.28, "max_completion_length": LONGEST, "num_generations": 2}
    config = GRPOConfig(
        str(folder),
        beta=0.0,
        **{**common, **settings},
        per_device_train_batch_size=4,
        use_cpu=True,
        bf16=False,
        report_to="none",
    )
    trainer = GRPOTrainer(
        random_qwen2(chatml_tokenizer(), context=64),
        reward_funcs=lambda completions, **columns: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["nothing"]}),
        processing_class=chatml_tokenizer(),
    )
    # Set afterwards: otherwise TRL loads a reference model, and the reference's log-probabilities are given here.
    trainer.beta = beta
    trainer.model.eval()
    return trainer


def grpo_numbers(folder, inputs, **settings):
    """Return TRL's loss of the shared inputs and its gradient by the log-probabilities."""
    given = {name: torch.tensor(values) for name, values in inputs.items()}
    now = given["now"].clone().requires_grad_()
    trainer = grpo_trainer(folder, **settings)
    trainer._get_per_token_logps_and_entropies = lambda *args, **more: (now, given["entropy"], None)
    one_per_row = settings.get("importance_sampling_level") == "sequence"
    loss = trainer._compute_loss(
        trainer.model,
        {
            "prompt_ids": torch.ones(4, 2, dtype=torch.int64),
            "prompt_mask": torch.ones(4, 2, dtype=torch.int64),
            "completion_ids": torch.ones(4, 7, dtype=torch.int64),
            "completion_mask": given["present"],
            "tool_mask": given["said"],
            "advantages": given["row_advantages"] if one_per_row else given["advantages"],
            "old_per_token_logps": given["old"],
            "ref_per_token_logps": given["reference"],
            "num_items_in_batch": given["said"].sum(),
        },
    )
    loss.backward()
    return {"settings": settings, "loss": loss.item(), "gradient": now.grad.tolist()}


def mismatch_numbers(folder, inputs, mode):
    """Return the weights by which TRL corrects for a sampler, as its rollout step computes them."""
    given = {name: torch.tensor(values) for name, values in inputs.items()}
    trainer = grpo_trainer(folder, vllm_importance_sampling_mode=mode, **BOUNDS)
    trainer.use_vllm = True
    lengths = given["present"].sum(dim=1).tolist()

    def cut(values):
        return [row[:length] for row, length in zip(values.tolist(), lengths, strict=True)]

    trainer._generate = lambda prompts: (
        [[5, 6]] * 4,
        [[7] * length for length in lengths],
        cut(given["said"]),
        ["..."] * 4,
        cut(given["sampler"]),
        {},
        None,
        None,
    )
    trainer._get_per_token_logps_and_entropies = lambda *args, **more: (given["old"], None, None)
    made = trainer._generate_and_score_completions([{"prompt": "nothing"}] * 4)
    return {"settings": {"mode": mode, **BOUNDS}, "weights": made["importance_sampling_ratio"].tolist()}


def record(folder):
    inputs = shared_inputs()
    return {
        "versions": {name: version(name) for name in ("trl", "transformers", "torch")},
        "max_completion_length": LONGEST,
        "inputs": inputs,
        "losses": {name: grpo_numbers(folder, inputs, **settings) for name, settings in CASES.items()},
        "mismatch": {mode: mismatch_numbers(folder, inputs, mode) for mode in MISMATCHES},
    }


@pytest.mark.parametrize("part", ["inputs", "losses", "mismatch"])
def test_trl_says_what_was_recorded(part, tmp_path):
    recorded, found = json.loads(RECORDED.read_text())[part], record(tmp_path)[part]
    assert found.keys() == recorded.keys()
    for name, values in recorded.items():
        if part == "inputs":
            assert torch.allclose(torch.tensor(found[name]), torch.tensor(values))
            continue
        for key in values.keys() - {"settings"}:
            assert torch.allclose(torch.tensor(found[name][key]), torch.tensor(values[key]), atol=1e-6), (name, key)


if __name__ == "__main__":
    import tempfile

    RECORDED.write_text(json.dumps(record(tempfile.mkdtemp())) + "\n")
