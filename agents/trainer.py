"""Trainer: the loop from searches to a better policy, which can be stopped at any moment and goes on bit for bit."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, pstdev
from time import perf_counter
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter

from tsr_gym.agents.advantages.pick import pick_estimator
from tsr_gym.agents.assembly import Assembly
from tsr_gym.agents.batch import collate
from tsr_gym.agents.checkpoint import Progress, checkpoints, drop_old, load_checkpoint, save_checkpoint
from tsr_gym.agents.collect import Collected, Collector, pick_rater, pick_strategy
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.evaluate import bars, evaluate, held_out, summarise
from tsr_gym.agents.files import JsonLines, check_folder, writing
from tsr_gym.agents.filters import Filtered
from tsr_gym.agents.learner import Learner
from tsr_gym.agents.lessons import pick_lessons
from tsr_gym.agents.logprobs import cross_logprobs
from tsr_gym.agents.models import ModelCard, Policy, load_critic, load_policy, pick_autocast, pick_device
from tsr_gym.agents.stability import first_answers, group_signs, prompt_information, tree_signs
from tsr_gym.agents.trajectory import Group
from tsr_gym.errors import CheckpointError, ConfigError, PromptTooLong, TrainingDiverged
from tsr_gym.seeds import derive_seed

Record = dict[str, Any]
Watch = Callable[[str, Record], None]
LEARNED = (
    *("policy_loss", "value_loss", "entropy", "clip_fraction", "grad_norm", "critic_grad_norm", "spikes", "skipped"),
    *("kl", "imitation_loss", "mismatch_kl", "mismatch_cut"),
)


class Trainer:
    """A training run in a folder; made by `start_run` or `resume_run`.

    The folder holds ``config.json``, ``metrics.jsonl`` (a line per update), ``evaluations.jsonl``, ``trees/``,
    ``checkpoints/`` and ``tensorboard/``. Everything random in an update derives from the run's seed and from counts
    that a checkpoint holds, so a run that goes on repeats what it would have done.

    Args:
        config: All settings.
        folder: Where the run lives.
        model_dir: The language model as it is now.
        token_targets: Sampled tokens in all after each update, for a run that matches another; None for other runs.
    """

    def __init__(
        self, config: TrainConfig, folder: Path, model_dir: Path, token_targets: Sequence[int] | None = None
    ) -> None:
        torch.set_num_threads(config.model.threads)
        device = pick_device(config.model.device)
        self.config = config
        self.folder = folder
        self.token_targets = token_targets
        self.progress = Progress()
        self.policy = load_policy(model_dir, device=device)
        assembly = Assembly(config.env, config.task, config.model, self.policy)
        stage = assembly.stage(config.task.train_split, config.search)
        self.eval_stage = assembly.stage(config.task.eval_split)
        self.chat = assembly.chat_about(stage.base, temperature=config.model.temperature)
        self.eval_chat = assembly.chat_about(stage.base, temperature=config.run.eval_temperature)
        rater = pick_rater(config.search, self.chat)
        self.collector = Collector(config.search, stage, self.chat, seed=config.run.seed, rater=rater)
        self.lessons = pick_lessons(config.search, config.learn.credit)
        self.learner = Learner(
            self.policy.model,
            load_critic(model_dir, device=device) if config.learn.algorithm == "ppo" else None,
            config.learn,
            temperature=config.model.temperature,
            autocast=pick_autocast(config.model.dtype, device),
        )
        self.metrics = JsonLines(folder / "metrics.jsonl")
        self.evaluations = JsonLines(folder / "evaluations.jsonl")

    def run(self, *, watch: Watch = lambda kind, record: None, stop: Callable[[], bool] = lambda: False) -> bool:
        """Train to the last update.

        Args:
            watch: Called with ``"update"`` or ``"evaluation"`` and the record that was just written.
            stop: Asked after every update; when it says so, a checkpoint is written and the run ends early.

        Returns:
            Whether the run came to its end.

        Raises:
            TrainingDiverged: A loss or gradient is not finite.
            PromptTooLong: An episode outgrew the model's context.
            CheckpointError: Something could not be written; earlier checkpoints are intact.
        """
        total = self.config.run.updates
        with SummaryWriter(self.folder / "tensorboard", purge_step=self.progress.update + 1) as board:
            if not self.evaluations.read():
                self._evaluate(board, watch)
            while self.progress.update < total:
                record, collected = self._update_or_save()
                self.metrics.append(record)
                _write_scalars(board, "train", record)
                watch("update", record)
                if self._due(self.config.run.eval_every):
                    self._evaluate(board, watch)
                stopped = stop()
                if stopped or self._due(self.config.run.checkpoint_every):
                    self._save_trees(collected)
                    self.save()
                if stopped:
                    return self.progress.update == total
        return True

    def save(self) -> None:
        """Write a checkpoint of the run as it is now, and delete those that are too old."""
        save_checkpoint(self.folder, self.policy, self.learner, self.progress)
        drop_old(self.folder, self.config.run.keep_checkpoints)

    def _due(self, every: int) -> bool:
        update = self.progress.update
        return update == self.config.run.updates or (every > 0 and update % every == 0)

    def _update_or_save(self) -> tuple[Record, Collected]:
        """Do one update; where it fails before anything was learned, keep what came before it in a checkpoint."""
        try:
            return self._update()
        except (PromptTooLong, TrainingDiverged) as error:
            if isinstance(error, PromptTooLong) or error.steps_taken == 0:
                self.save()
            raise

    def _update(self) -> tuple[Record, Collected]:
        """Do one update and return its record and what was collected for it."""
        started = perf_counter()
        self.chat.engine.load_weights(())
        collected = self._collect()
        groups = self.lessons(collected)
        learning = perf_counter()
        update = self.progress.update + 1
        learned: dict[str, float] = {}
        if any(trajectory.num_tokens for group in groups for trajectory in group.trajectories):
            batch = collate(groups, layout=self.config.learn.layout)
            learned = self.learner.update(batch, seed=derive_seed(self.config.run.seed, "update", update))
        self.progress = Progress(
            update,
            self.progress.tasks + len(collected.groups),
            self.progress.sampled_tokens + collected.spent.sampled_tokens,
        )
        now = perf_counter()
        seconds = collected.seconds | {"update": now - learning, "all": now - started}
        return self._record(collected, groups, learned, seconds), collected

    def _collect(self) -> Collected:
        """Search as many instances as an update takes: a fixed number, or until another run's tokens are matched."""
        groups, first = self.config.search.groups, self.progress.tasks
        if self.token_targets is None:
            return self.collector.collect(first, groups)
        missing = self.token_targets[self.progress.update] - self.progress.sampled_tokens
        collected = self.collector.collect(first, groups)
        while collected.spent.sampled_tokens < missing:
            collected += self.collector.collect(first + len(collected.groups), groups)
        return collected

    def _record(
        self, collected: Collected, groups: Filtered, learned: dict[str, float], seconds: dict[str, float]
    ) -> Record:
        """Return the line of an update; everything that a clock measured stands under ``seconds``."""
        played = [trajectory for group in collected.groups for trajectory in group.trajectories]
        summary = summarise(played)
        rewards = [trajectory.total_reward for trajectory in played]
        spent = collected.spent
        return {
            "step": self.progress.update,
            "search": self.config.search.search,
            "per_instance": self.config.search.per_instance,
            "success": summary.success,
            "reward_mean": fmean(rewards) if rewards else None,
            "reward_std": pstdev(rewards) if rewards else None,
            "response_length": summary.response_length,
            "turns": summary.turns,
            "valid": summary.valid,
            "trajectories": len(played),
            "groups": len(collected.groups),
            "groups_kept": len(groups),
            "dropped": dict(groups.dropped),
            **group_signs(collected.groups),
            **self._prompt_signs(collected.groups),
            **tree_signs(tree for trees in collected.trees for tree in trees),
            "sampled_tokens": spent.sampled_tokens,
            "sampled_tokens_total": self.progress.sampled_tokens,
            "prompt_tokens": spent.prompt_tokens,
            "prompt_tokens_saved": spent.prompt_tokens_saved,
            "model_calls": collected.model_calls,
            "env_steps": spent.env_steps,
            "restores": spent.restores,
            **{name: learned.get(name) for name in LEARNED},
            "seconds": seconds,
        }

    def _prompt_signs(self, groups: Sequence[Group]) -> dict[str, float]:
        """Return how much answers depend on their prompts; a forward pass for every pair, so only now and then."""
        prompts, answers = first_answers(groups)
        if len(prompts) < 2 or not self._due(self.config.run.eval_every):
            return {}
        logprobs = cross_logprobs(
            self.policy.model,
            prompts,
            answers,
            temperature=self.config.model.temperature,
            microbatch=self.config.learn.microbatch,
        )
        found = prompt_information(logprobs, range(len(prompts)))
        return {"prompt_recall": found.recall, "prompt_information": found.nats}

    def _evaluate(self, board: SummaryWriter, watch: Watch) -> None:
        run = self.config.run
        tasks = held_out(run.eval_instances)
        started = perf_counter()
        self.eval_chat.engine.load_weights(())
        played = evaluate(
            self.eval_stage, self.eval_chat, tasks=tasks, seed=derive_seed(run.seed, self.progress.update)
        )
        known = self.evaluations.read()
        limits = {name: known[0][name] for name in ("random", "optimal")} if known else None
        record: Record = {
            "step": self.progress.update,
            "sampled_tokens_total": self.progress.sampled_tokens,
            **asdict(played),
            **(limits or asdict(bars(self.eval_stage, tasks=tasks))),
        }
        record["seconds"] = {"evaluation": perf_counter() - started}
        self.evaluations.append(record)
        _write_scalars(board, "evaluation", record)
        watch("evaluation", record)

    def _save_trees(self, collected: Collected) -> None:
        folder = self.folder / "trees" / f"{self.progress.update:06d}"
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for group, trees in enumerate(collected.trees[: self.config.run.save_trees]):
                for number, tree in enumerate(trees):
                    tree.save(folder / f"{group:02d}-{number:02d}.jsonl")


def check_run(config: TrainConfig) -> None:
    """Raise ConfigError where a run cannot begin, before a model is loaded or built for it.

    Raises:
        ConfigError: The folder exists, or a setting is unknown or impossible.
    """
    if config.folder.exists():
        raise ConfigError(
            f"{config.folder} exists: choose another --out, or go on with that run by --resume {config.folder}"
        )
    pick_device(config.model.device)
    pick_strategy(config.search)
    pick_lessons(config.search, config.learn.credit)
    pick_estimator(config.learn.estimator, critic=config.learn.algorithm == "ppo")
    any_model = Assembly(config.env, config.task, config.model, Policy(None, None, ModelCard()))
    for split in (config.task.train_split, config.task.eval_split):
        any_model.stage(split)
    _token_targets(config)


def start_run(config: TrainConfig, model_dir: Path) -> Trainer:
    """Begin a run: its folder appears with the configuration and a first checkpoint, or not at all.

    Raises:
        ConfigError: The folder exists, or a setting is unknown or impossible.
        CheckpointError: The model cannot be read, or the folder cannot be written.
    """
    check_run(config)
    folder = config.folder
    targets = _token_targets(config)
    trainer = Trainer(config, folder, model_dir, targets)
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        with writing(folder):
            shutil.rmtree(partial, ignore_errors=True)
            for name in ("trees", "checkpoints"):
                (partial / name).mkdir(parents=True)
            (partial / "config.json").write_text(config.to_json())
            if targets is not None:
                (partial / "token_targets.json").write_text(json.dumps(targets))
            save_checkpoint(partial, trainer.policy, trainer.learner, trainer.progress)
            os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return trainer


def resume_run(folder: Path, *, updates: int | None = None) -> Trainer:
    """Go on with a run from its latest checkpoint.

    Args:
        folder: The run.
        updates: A new number of updates, None for the configured one.

    Raises:
        CheckpointError: The folder holds no run, or its latest checkpoint is damaged.
        ConfigError: The run cannot have as many updates.
    """
    if not (folder / "config.json").is_file() or not checkpoints(folder):
        raise CheckpointError(f"{folder}: wanted the folder of a run with config.json and a checkpoint, found none")
    config = TrainConfig.from_json((folder / "config.json").read_text(), source=str(folder / "config.json"))
    config = replace(config, run=replace(config.run, out=folder, updates=updates or config.run.updates))
    targets = folder / "token_targets.json"
    latest = checkpoints(folder)[-1]
    check_folder(latest)
    known = json.loads(targets.read_text()) if targets.exists() else None
    if known is not None and len(known) < config.run.updates:
        raise ConfigError(f"{folder} matches the tokens of a run of {len(known)} updates: it cannot have more")
    trainer = Trainer(config, folder, latest / "model", known)
    trainer.progress = load_checkpoint(latest, trainer.learner)
    trainer.metrics.cut_after(trainer.progress.update)
    trainer.evaluations.cut_after(trainer.progress.update)
    return trainer


def _token_targets(config: TrainConfig) -> list[int] | None:
    """Return the tokens that another run had sampled after each of its updates.

    Raises:
        ConfigError: That run has fewer updates, or is none.
    """
    other = config.search.match_tokens
    if other is None:
        return None
    totals = [record["sampled_tokens_total"] for record in JsonLines(other / "metrics.jsonl").read()]
    if len(totals) < config.run.updates:
        raise ConfigError(
            f"match_tokens: wanted a run of at least {config.run.updates} updates, {other} has {len(totals)}"
        )
    return totals


def _write_scalars(board: SummaryWriter, name: str, record: Record) -> None:
    for key, value in record.items():
        if isinstance(value, (int, float)) and key != "step":
            board.add_scalar(f"{name}/{key}", value, record["step"])
