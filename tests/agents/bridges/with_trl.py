"""Searched rollouts in TRL 1.16.0's GRPOTrainer, and exports read by `datasets`; `make test-trl` runs it with TRL."""

from copy import deepcopy
from dataclasses import replace
from functools import partial
from math import log

import pytest
import torch

from tests.agents.bridges.helpers import grown_trees
from tests.agents.bridges.test_export import small_tree
from tests.agents.tiny import chatml_tokenizer, random_qwen2
from tsr_gym import ConfigError
from tsr_gym.agents.bridges.export import export
from tsr_gym.agents.bridges.rows import tree_rows
from tsr_gym.agents.bridges.trl import (
    ADVANTAGES,
    env_reward,
    task_prompts,
    tsr_environment,
    tsr_grpo_trainer,
    tsr_rollout_func,
)
from tsr_gym.agents.config import RUN_FILE
from tsr_gym.agents.episodes.trajectory import Group, harvest_leaves
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.learning.losses import step_weights
from tsr_gym.agents.learning.settings import Objective
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.logprobs import token_logprobs
from tsr_gym.agents.models.settings import ModelCard, ModelConfig

STEPS, GROUP, ROWS = 3, 4, 8
SHARED = {
    "use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no", "logging_steps": 1,
    "gradient_checkpointing": False,
}  # fmt: skip
WORLD = "tests.agents.bridges.helpers:tests/Counting-v0"


@pytest.fixture
def policy():
    """A model of random weights and its tokenizer."""
    tokenizer = chatml_tokenizer()
    return LanguageModel(random_qwen2(tokenizer), tokenizer, ModelCard())


@pytest.fixture
def settings(tmp_path):
    """Settings of the trainer: three steps of two groups of four."""
    from trl import GRPOConfig

    sizes = {"max_steps": STEPS, "num_generations": GROUP, "per_device_train_batch_size": ROWS}
    return GRPOConfig(str(tmp_path), **sizes, learning_rate=1e-3, beta=0.0, temperature=1.0, **SHARED)


class Recorded:
    """A rollout function that keeps its results."""

    def __init__(self, rollout):
        self.rollout = rollout
        self.prompts = []
        self.rows = []

    def __call__(self, prompts, trainer):
        self.prompts.append(prompts)
        self.rows.append(self.rollout(prompts, trainer))
        return self.rows[-1]


def rollout_of(policy, strategy, estimator=None):
    model = ModelConfig(max_tokens=6, prompt="plain")
    return Recorded(tsr_rollout_func(WORLD, strategy, estimator=estimator, model=model, card=policy.card))


def dataset():
    from datasets import Dataset

    return Dataset.from_list(task_prompts(range(6)))


def trained(trainer_class, policy, settings, recorded):
    """Train three steps; return the trainer, the inputs of its losses, and the largest change of a parameter."""
    before = [parameter.clone() for parameter in policy.model.parameters()]
    trainer = trainer_class(
        policy.model,
        reward_funcs=env_reward,
        args=settings,
        train_dataset=dataset(),
        processing_class=policy.tokenizer,
        rollout_func=recorded,
    )
    inputs = []
    loss = trainer._compute_loss

    def watched(model, given):
        inputs.append(given)
        return loss(model, given)

    trainer._compute_loss = watched
    trainer.train()
    pairs = zip(policy.model.parameters(), before, strict=True)
    moved = max(float((now - was).detach().abs().max()) for now, was in pairs)
    return trainer, inputs, moved


def losses(trainer):
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def test_three_steps_of_grpo_with_beam_search(policy, settings):
    from trl import GRPOTrainer

    recorded = rollout_of(policy, "beam(width=2, branching=2)")
    trainer, inputs, moved = trained(GRPOTrainer, policy, settings, recorded)
    assert len(recorded.rows) == STEPS
    # TRL repeats prompts group by group.
    assert all(prompts[:GROUP] == [prompts[0]] * GROUP and len(prompts) == ROWS for prompts in recorded.prompts)
    assert len(losses(trainer)) == STEPS
    assert all(abs(loss) < float("inf") for loss in losses(trainer))
    assert moved > 1e-5
    for given in inputs:
        matching(given, recorded)


def matching(given, recorded):
    """Compare the inputs of a loss with the returned rows, and return the rows in its order."""
    by_tokens = {}
    for returned in recorded.rows:
        for number, ids in enumerate(returned["completion_ids"]):
            key = (tuple(returned["prompt_ids"][number]), tuple(ids))
            by_tokens[key] = {name: column[number] for name, column in returned.items()}
    rows = []
    for number in range(len(given["completion_ids"])):
        prompt = given["prompt_ids"][number][given["prompt_mask"][number] > 0].tolist()
        ids = given["completion_ids"][number][given["completion_mask"][number] > 0].tolist()
        row = by_tokens[tuple(prompt), tuple(ids)]
        assert given["tool_mask"][number, : len(ids)].tolist() == row["env_mask"]
        rows.append(row)
    return rows


@pytest.mark.parametrize("estimator", ["tspo", "tree_backup"])
def test_a_loss_learns_from_the_advantages_that_were_computed_here(policy, settings, estimator):
    recorded = rollout_of(policy, "beam(width=2, branching=2)", estimator)
    trainer, inputs, moved = trained(tsr_grpo_trainer(), policy, settings, recorded)
    seen = 0.0
    for given in inputs:
        rows = matching(given, recorded)
        for number, row in enumerate(rows):
            ours = torch.tensor(row[ADVANTAGES])
            assert torch.equal(given["advantages"][number, : len(ours)], ours)
            assert not given["advantages"][number, len(ours) :].any()
            seen = max(seen, float(ours.abs().max()))
    assert seen > 0.1
    assert moved > 1e-5
    assert all(abs(loss) < float("inf") for loss in losses(trainer))


def test_a_loss_with_ratio_one_is_minus_the_mean_advantage_of_sampled_tokens(policy, settings):
    settings.loss_type = "bnpo"
    recorded = rollout_of(policy, "beam(width=2, branching=2)", "grpo")
    trainer, inputs, _ = trained(tsr_grpo_trainer(), policy, settings, recorded)
    for given, loss in zip(inputs, losses(trainer), strict=True):
        sampled = (given["tool_mask"] * given["completion_mask"]) > 0
        assert loss == pytest.approx(-float(given["advantages"][sampled].mean()), abs=1e-4)


def test_rows_without_advantages_are_refused(policy, settings):
    recorded = rollout_of(policy, "naive")
    with pytest.raises(ConfigError, match="the rows have no advantages"):
        trained(tsr_grpo_trainer(), policy, settings, recorded)


def test_an_environment_with_a_tool_is_played_by_the_trainer_itself(settings):
    from pathlib import Path

    import trl
    from datasets import Dataset
    from trl import GRPOTrainer

    tokenizer = chatml_tokenizer()
    templates = Path(trl.__file__).parent / "chat_templates"
    tokenizer.chat_template = (templates / "qwen2_5.jinja").read_text()
    settings.max_steps, settings.max_completion_length = 1, 16
    rows = [{"prompt": [{"role": "user", "content": "Play."}], "task": number} for number in range(4)]
    made = []

    def factory():
        made.append(tsr_environment("frozenlake", max_turns=3)())
        return made[-1]

    trainer = GRPOTrainer(
        random_qwen2(tokenizer, context=4096),
        args=settings,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        environment_factory=factory,
    )
    trainer.train()
    assert made
    # The trainer writes its reward into a column.
    (line,) = [line for line in trainer.state.log_history if "loss" in line]
    assert line["loss"] == pytest.approx(0.0, abs=1e3)
    assert any("ToolEnvironment" in name for name in line)


FORMS = {"jsonl": "json", "parquet": "parquet"}


@pytest.mark.parametrize("suffix", FORMS)
@pytest.mark.parametrize(
    "kind", ["trajectories(take='leaves')", "nodes", "preferences(tokenizer='.')", "step-values(unfinished='return')"]
)
def test_a_data_set_has_the_records_that_were_written(tmp_path, monkeypatch, suffix, kind):
    from datasets import load_dataset

    chatml_tokenizer().save_pretrained(tmp_path)
    monkeypatch.chdir(tmp_path)

    tree = small_tree() if kind.startswith("preferences") else grown_trees()[0][0]
    tree.save(tmp_path / "tree.jsonl")
    out = tmp_path / f"rows.{suffix}"
    written = export([tmp_path / "tree.jsonl"], out, kind=kind)
    dataset = load_dataset(FORMS[suffix], data_files=str(out), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(dataset) == written.records > 0
    if kind.startswith("trajectories"):
        for row, wanted in zip(dataset, tree_rows(tree, take="leaves"), strict=True):
            assert row["input_ids"] == list(wanted.input_ids)
            assert row["completion_mask"] == list(wanted.completion_mask)
            assert row["logprobs"] == list(wanted.logprobs)


@pytest.fixture
def exported(tmp_path):
    """A function that exports a kind of records from a folder like that of a run, and reads them as a data set."""
    from datasets import load_dataset

    (tree,), model, tokenizer = grown_trees(turns=3, max_tokens=6)
    tokenizer.save_pretrained(tmp_path / "run/checkpoints/000001/model")
    (tmp_path / "run" / RUN_FILE).touch()
    # All of these lakes earn the same, so that only a rater's scores make preferences.
    for leaf in tree.leaves():
        tree.rate(leaf, float(leaf))
    tree.save(tmp_path / "run/trees.jsonl")

    def read(kind):
        out = tmp_path / "rows.parquet"
        export([tmp_path / "run/trees.jsonl"], out, kind=kind)
        return load_dataset("parquet", data_files=str(out), split="train", cache_dir=str(tmp_path / "cache"))

    return read, tree, model, tokenizer


def stepped(trainer_class, config_class, settings, model, tokenizer, dataset, **more):
    """Return the loss of the first step of one of TRL's trainers, on all rows at once."""
    sizes = {"max_steps": 1, "per_device_train_batch_size": len(dataset), "learning_rate": 1e-3}
    config = config_class(settings.output_dir, **sizes, **SHARED, **more)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    trainer = trainer_class(model, args=config, train_dataset=dataset, processing_class=tokenizer)
    trainer.train()
    assert any(not torch.equal(now, was) for now, was in zip(trainer.model.parameters(), before, strict=True))
    (loss,) = losses(trainer)
    return loss


@pytest.mark.parametrize("columns", [["labels"], ["completion_mask"]])
def test_fine_tuning_on_an_export_has_the_loss_of_our_imitation_of_the_same_trajectories(settings, exported, columns):
    from trl import SFTConfig, SFTTrainer

    read, tree, model, tokenizer = exported
    dataset = read("trajectories(take='leaves')").select_columns(["input_ids", *columns])
    trajectories = [replace(leaf, selected_by="beam", success=True) for leaf in harvest_leaves(tree)]
    batch = collate([Group(0, tuple(trajectories))])
    objective = Objective(imitation=1.0, searched_weight=0.0, aggregation="token")
    with torch.no_grad():
        logprobs, _ = token_logprobs(model, batch.ids, batch.present, batch.sampled)
    ours = -float((step_weights(objective, batch).imitation * logprobs).sum())
    # Most tokens are the environment's, so a loss that learned them too would differ.
    assert batch.sampled.sum() < batch.present.sum() / 2
    more = {"completion_only_loss": True} if columns == ["completion_mask"] else {}
    loss = stepped(SFTTrainer, SFTConfig, settings, model, tokenizer, dataset, max_length=None, **more)
    assert loss == pytest.approx(ours, rel=1e-4)


def test_preferences_are_trained_as_they_are_exported(settings, exported):
    from trl import DPOConfig, DPOTrainer

    read, _, model, tokenizer = exported
    dataset = read("preferences(pairing='all')")
    # Later prompts hold sampled answers, whose text may have other tokens.
    firsts = [row for row in dataset if row["node"] == 0]
    assert firsts
    assert all(tokenizer(row["prompt"])["input_ids"] == row["prompt_ids"] for row in firsts)
    # Before the first step the policy is its own reference, where the loss is the logarithm of 2.
    trainer = partial(DPOTrainer, ref_model=deepcopy(model))
    assert stepped(trainer, DPOConfig, settings, model, tokenizer, dataset) == pytest.approx(log(2), abs=1e-4)
