"""Our GRPO loss compared with that of TRL 1.16.0 on the same tokens; `make test-trl` runs it where TRL is installed.

TRL has rows of one prompt and one completion, and no trajectories. Its reductions correspond to ours:

- ``loss_type="grpo"`` gives every row the same weight. It is our ``"sequence"`` where each trajectory is one row, that
  is, where prompts grow. Where a trajectory has a row per turn, TRL counts each turn as a trajectory; ours (TSR Eq. 13)
  counts the trajectory once, so that long episodes weigh no more than short ones.
- ``loss_type="bnpo"`` gives every token the same weight. It is our ``"token"``, for any rows.

TRL's losses of given log-probabilities are recorded in ``losses/golden/trl.json``, so that test_published_numbers.py
compares with them without TRL. Run as a script, this file records them anew.
"""

import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from benchmarks.learner_speed import trl_inputs
from tests.agents.learning.test_batch import episode, turn
from tests.agents.tiny import chatml_tokenizer, random_qwen2
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages import grpo
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.learning.learner import token_logprobs
from tsr_gym.agents.learning.losses import Given, StepWeights, policy_loss, token_weights
from tsr_gym.agents.learning.settings import Objective

TEMPERATURE = 0.7
# Two turns in one row, with two tokens of the environment between them; answers of one, two and four tokens.
LONG = episode(turn([1, 2], [30, 31, 32], 0.0, 0, 0, 0), turn([1, 2, 30, 31, 32, 9, 8], [33], 1.0, 0))
SHORT = episode(turn([1, 2], [34], 0.25, 0)), episode(turn([1, 2], [35, 36], -0.5, 0, 0))
OTHERS = episode(turn([5, 6, 7], [40, 41, 42, 43], 2.0, 0, 0, 0, 0)), episode(turn([5, 6, 7], [44], 0.5, 0))
ONE_ROW = Group(0, (LONG, *SHORT)), Group(1, OTHERS)
# One trajectory of three rows and one of a single row.
THREE = turn([1, 2], [30, 31], 0.0, 0, 0), turn([8], [32], 0.0, 0), turn([9, 9], [33, 34, 35], 1.0, 0, 0, 0)
ROW_PER_TURN = (Group(0, (episode(*THREE), episode(turn([1, 2], [36, 37], -0.5, 0, 0)))),)


@pytest.fixture(scope="module")
def model():
    return random_qwen2(chatml_tokenizer(), context=64)


@pytest.fixture(scope="module")
def make_trainer(tmp_path_factory):
    """Return a function that makes TRL's trainer of a model with a loss type."""

    def make(model, loss_type):
        settings = {"loss_type": loss_type, "temperature": TEMPERATURE}
        return grpo_trainer(tmp_path_factory.mktemp("trl"), model=model, **settings)

    return make


def batch_of(groups, model):
    """Return the groups' batch, as sampled by a policy whose log-probabilities were somewhat other."""
    batch = collate(groups)
    with torch.no_grad():
        now, _ = token_logprobs(model, batch.ids, batch.present, batch.sampled, temperature=TEMPERATURE)
    noise = torch.randn(now.shape, generator=torch.Generator().manual_seed(3))
    return replace(batch, old_logprobs=now + 0.5 * noise * batch.sampled)


def our_loss(model, batch, weights):
    read = token_logprobs(model, batch.ids, batch.present, batch.sampled, temperature=TEMPERATURE)
    objective = Objective(entropy=0.0, clip_low=0.2, clip_high=0.28)
    return policy_loss(objective, *read, Given.of(batch, grpo(batch), StepWeights(weights)))


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def check_equal(model, make_trainer, batch, aggregation, loss_type):
    """Compare losses, gradients and how much was clipped."""
    ours = our_loss(model, batch, token_weights(batch, aggregation))
    trainer = make_trainer(model, loss_type)
    theirs = trainer.compute_loss(trainer.model, trl_inputs(batch, grpo(batch)))
    assert ours.loss.item() == pytest.approx(theirs.item(), abs=1e-6)
    assert abs(ours.loss.item()) > 0.01
    mine, its = gradients(model, ours.loss), gradients(model, theirs)
    assert all(torch.allclose(mine[name], its[name], atol=1e-5) for name in mine)
    return ours, trainer


def test_a_loss_over_trajectories_of_one_row_is_trls_grpo(model, make_trainer):
    check_equal(model, make_trainer, batch_of(ONE_ROW, model), "sequence", "grpo")


@pytest.mark.parametrize("groups", [ONE_ROW, ROW_PER_TURN], ids=["one row", "row per turn"])
def test_a_loss_over_tokens_is_trls_bnpo_and_as_much_is_clipped(model, make_trainer, groups):
    ours, trainer = check_equal(model, make_trainer, batch_of(groups, model), "token", "bnpo")
    # TRL's log entry of this name is a mean over tokens too.
    (clipped,) = trainer._metrics["eval"]["clip_ratio/region_mean"]
    assert ours.parts["clip_fraction"].item() == pytest.approx(clipped)
    assert 0 < clipped < 1


def test_with_a_row_per_turn_trls_grpo_counts_each_turn_as_a_trajectory(model, make_trainer):
    batch = batch_of(ROW_PER_TURN, model)
    trainer = make_trainer(model, "grpo")
    theirs = trainer.compute_loss(trainer.model, trl_inputs(batch, grpo(batch))).item()
    assert our_loss(model, batch, token_weights(batch, "sequence")).loss.item() != pytest.approx(theirs, abs=1e-2)
    # Our advantages, but the weights of a batch in which every row is a trajectory.
    weights = token_weights(replace(batch, trajectory=torch.arange(len(batch.ids))), "sequence")
    assert our_loss(model, batch, weights).loss.item() == pytest.approx(theirs, abs=1e-6)


RECORDED = Path(__file__).parent / "losses" / "golden" / "trl.json"
LONGEST = 9
GRPO = {"loss_type": "grpo"}
# TRL's settings by name; test_published_numbers.py has our equivalents.
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
    """Return rows of 7 tokens as lists: the sampled ones, their log-probabilities by four policies, and advantages."""
    draw = torch.Generator().manual_seed(11)

    def noise(scale):
        return scale * torch.randn(4, 7, generator=draw)

    present = torch.arange(7) < torch.tensor([[7], [5], [6], [3]])
    # The environment's tokens between two turns.
    sampled = present.clone()
    sampled[0, 3:5] = sampled[2, 2] = False
    old = -torch.rand(4, 7, generator=draw) * 2 - 0.1
    return {
        "present": present.int().tolist(),
        "said": sampled.int().tolist(),
        "old": old.tolist(),
        "now": (old + noise(0.4)).tolist(),
        "sampler": (old + noise(0.15)).tolist(),
        "reference": (old + noise(0.4)).tolist(),
        "entropy": torch.rand(4, 7, generator=draw).tolist(),
        "advantages": noise(1.0).tolist(),
        "row_advantages": torch.randn(4, generator=draw).tolist(),
    }


def grpo_trainer(folder, *, beta=0.0, model=None, **settings):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    common = {"epsilon": 0.2, "epsilon_high": 0.28, "max_completion_length": LONGEST, "num_generations": 2}
    machine = {"use_cpu": True, "bf16": False, "report_to": "none", "per_device_train_batch_size": 4}
    config = GRPOConfig(str(folder), beta=0.0, **machine, **common | settings)
    trainer = GRPOTrainer(
        model or random_qwen2(chatml_tokenizer(), context=64),
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
    batch = {name: torch.ones(4, 2, dtype=torch.int64) for name in ("prompt_ids", "prompt_mask")}
    batch |= {"completion_ids": torch.ones(4, 7, dtype=torch.int64), "completion_mask": given["present"]}
    batch |= {"old_per_token_logps": given["old"], "ref_per_token_logps": given["reference"]}
    batch |= {"tool_mask": given["said"], "num_items_in_batch": given["said"].sum()}
    batch["advantages"] = given["row_advantages"] if one_per_row else given["advantages"]
    loss = trainer._compute_loss(trainer.model, batch)
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

    tokens = [[5, 6]] * 4, [[7] * length for length in lengths], cut(given["said"])
    trainer._generate = lambda prompts: (*tokens, ["..."] * 4, cut(given["sampler"]), {}, None, None)
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
def test_trl_gives_what_was_recorded(part, tmp_path):
    recorded, result = json.loads(RECORDED.read_text())[part], record(tmp_path)[part]
    assert result.keys() == recorded.keys()
    for name, values in recorded.items():
        if part == "inputs":
            assert torch.allclose(torch.tensor(result[name]), torch.tensor(values))
            continue
        for key in values.keys() - {"settings"}:
            assert torch.allclose(torch.tensor(result[name][key]), torch.tensor(values[key]), atol=1e-6), (name, key)


if __name__ == "__main__":
    import tempfile

    RECORDED.write_text(json.dumps(record(tempfile.mkdtemp())) + "\n")
