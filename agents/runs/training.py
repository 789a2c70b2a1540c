"""Training: the loop from searches to a better policy, which can be stopped at any moment and goes on bit for bit."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from tsr_gym.agents.episodes.collect import Collected, Collector, edges_by_task, side_by_side
from tsr_gym.agents.episodes.held_out import HeldOut
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.play import Examined, examine
from tsr_gym.agents.episodes.start_states import Moment
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.lessons.groups import choose_groups
from tsr_gym.agents.models.critic import Critic
from tsr_gym.agents.models.language_model import (
    frozen_reference,
    hand_over_adapter,
    load_critic,
    load_policy,
    pick_autocast,
    pick_device,
    policy_host,
    restore_adapter,
)
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.policies.vllm_engine import Host
from tsr_gym.agents.processes import ALONE, Processes
from tsr_gym.agents.raters import goes_by, make_rater
from tsr_gym.agents.runs.checkpoint import Part, Progress, drop_old, save_checkpoint
from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.agents.runs.evaluation import evaluation_record
from tsr_gym.agents.runs.log import Record, RunLog, Watch
from tsr_gym.agents.runs.note_advantages import note_advantages
from tsr_gym.agents.runs.parity import check_parity, check_versions
from tsr_gym.agents.runs.practice import Practice
from tsr_gym.agents.runs.prompt_signs import prompt_signs
from tsr_gym.agents.runs.record import update_record
from tsr_gym.agents.runs.schedule import as_selected, lr_scale, share_done
from tsr_gym.agents.runs.token_budget import Limit, counted, search_within, total_of, update_end
from tsr_gym.agents.runs.workers.remote_collector import RemoteCollector
from tsr_gym.agents.runs.workers.settings import OFF, WorkerConfig
from tsr_gym.agents.runs.workers.worker import files_of
from tsr_gym.errors import ConfigError, EngineFailed, PromptTooLong, TrainingDiverged, WorkerLost
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Rater


class Trainer:
    """A training run in a folder; made by `start_run` or `resume_run`.

    The folder holds ``config.json``, ``metrics.jsonl`` (a line per update), ``evaluations.jsonl``, ``trees/``,
    ``checkpoints/``, ``tensorboard/`` and, where a KL term compares with the model that it began with, ``reference/``.
    Everything random in an update derives from the run's seed and from counts that a checkpoint holds, so a run that
    goes on repeats what it would have done.

    Args:
        config: All settings.
        folder: Where the run lives.
        model_dir: The language model as it is now.
        token_targets: Counted tokens in all after each update, for a run that matches another; None for other runs.
        processes: Those that train together. Each searches its share of the instances, with the whole model in its
            memory meanwhile, and learns with its part of the parameters; the first one writes and evaluates.
        workers: Where searches are done.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        model_dir: Path,
        token_targets: Sequence[int] | None = None,
        processes: Processes = ALONE,
        workers: WorkerConfig = OFF,
    ) -> None:
        torch.set_num_threads(config.model.threads)
        device = pick_device(config.model.device)
        self.config = config
        self.folder = folder
        self.token_targets = token_targets
        self.total_tokens = total_of(config.run, token_targets)
        self.processes = processes
        self.progress = Progress()
        self.policy = load_policy(model_dir, device=device, lora=config.lora)
        goes_on = folder in model_dir.parents
        if goes_on:
            # A checkpoint of this run: its model is merged, and its adapter goes on beside the weights it began with.
            restore_adapter(self.policy.model, model_dir)
        self.host = self._host(model_dir, workers)
        player = ModelPlayer(config.env, config.task, config.model, self.policy, self.host)
        pool = player.pool(config.task.train_split, config.search)
        self.chat = player.chat_about(pool.base, temperature=config.model.temperature)
        examined = ModelPlayer(config.env, config.task.held_out, config.model, self.policy, self.host)
        self.held_out = HeldOut(examined.pool(config.task.eval_split), config.run.eval_instances)
        self.eval_chat = examined.chat_about(self.held_out.pool.base, temperature=config.run.eval_temperature)
        critic = self._critic(model_dir)
        rater = self._rater(critic, workers)
        self.practice = Practice(config.search.moments, seed=config.run.seed, kind=config.search.moments_from)
        self.lessons = choose_groups(config.lessons)
        self.learner = Learner(
            self.policy.model,
            critic,
            config.learn,
            temperature=config.model.temperature,
            autocast=pick_autocast(config.model.dtype, device),
            reference=self._reference(),
            processes=processes,
        )
        self.collector: Collector | RemoteCollector
        self.remote: RemoteCollector | None = None
        if workers.wanted:
            files = files_of(model_dir, adapter=goes_on)
            self.collector = self.remote = RemoteCollector(config, files, workers, self.chat.engine, self.learner)
        else:
            self.collector = Collector(config.search, pool, self.chat, seed=config.run.seed, rater=rater)
        self.log = RunLog(folder, writes=processes.leads)
        # The search for the next update, where it has begun: version of its weights, and what waits for it.
        self._ahead: tuple[int, Callable[[], Collected]] | None = None

    def run(self, *, watch: Watch = lambda kind, record: None, stop: Callable[[], bool] = lambda: False) -> bool:
        """Train to the last update, or to the last of the tokens that the run may sample.

        Args:
            watch: Called with ``"update"`` or ``"evaluation"`` and the record that was just written.
            stop: Asked after every update; when it says so, a checkpoint is written and the run ends early.

        Returns:
            Whether the run came to its end.

        Raises:
            TrainingDiverged: A loss or gradient is not finite.
            PromptTooLong: An episode outgrew the model's context.
            EngineFailed: The engine does not sample by the weights that are trained.
            CheckpointError: Something could not be written; earlier checkpoints are intact.
        """
        with self.log.opened(self.progress.update, watch):
            known = self.processes.first(self.log.evaluations.read)
            # It may have ended while it was evaluated.
            if not known or (known[-1]["step"] < self.progress.update and self._due(self.config.run.eval_every)):
                self._evaluate()
            while not self.finished:
                record, collected = self._update_or_save()
                self.log.update(record)
                if self._due(self.config.run.eval_every):
                    self._evaluate()
                stopped = any(self.processes.each(stop))
                if stopped or self._due(self.config.run.checkpoint_every):
                    self.log.save_trees(self.progress.update, collected.trees[: self.config.run.save_trees])
                    self.save()
                if stopped:
                    return self.finished
        return True

    @property
    def parts(self) -> list[Part]:
        """What a checkpoint holds besides weights and counts."""
        return [self.practice]

    @property
    def finished(self) -> bool:
        """Whether the run has done all its updates, or sampled all its tokens."""
        run, progress = self.config.run, self.progress
        return progress.update >= run.updates or self._tokens_spent(counted(progress, run))

    def _tokens_spent(self, spent: float) -> bool:
        return self.total_tokens is not None and spent >= self.total_tokens

    def _host(self, model_dir: Path, workers: WorkerConfig) -> Host | None:
        """Return where the model is held for sampling, None where that is the learner's own or workers do it."""
        config, engine = self.config, self.config.model.engine
        if workers.wanted:
            return None
        if self.processes.size > 1 and engine != "transformers":
            raise ConfigError(f"several processes sample by engine transformers, or in workers of Ray, got {engine}")
        return policy_host(config.model, self.policy.model, model_dir, adapter_rank=config.adapter_rank)

    def _critic(self, model_dir: Path) -> Critic | None:
        learn, model = self.config.learn, self.policy.model
        if learn.algorithm != "ppo":
            return None
        if learn.critic == "head":
            return Critic.on(model, gradient=learn.critic_gradient)
        return load_critic(model_dir, device=model.device)

    def _rater(self, critic: Critic | None, workers: WorkerConfig) -> Rater | None:
        """Return the rater of searches, which asks this critic where it names no other."""
        if self.config.search.rater is None:
            return None
        rater = make_rater(self.config.search.rater, chat=self.chat, critic=critic)
        spread = self.processes.size > 1 or self.config.learn.offload
        if spread and goes_by(rater, critic):
            raise ConfigError("a critic of PPO that is spread or offloaded rates no searches: wanted one process")
        if workers.wanted and goes_by(rater, critic):
            raise ConfigError("workers do not have the run's own critic: wanted a rater of another one, or ray=off")
        return rater

    def _reference(self) -> Any | None:
        """Return the model that the run began with, where the objective compares with it."""
        if not self.config.learn.objective.kl_weight:
            return None
        kept = self.folder / "reference"
        if kept.exists():
            return load_policy(kept, device=self.policy.model.device).model.requires_grad_(False)
        return frozen_reference(self.policy)

    def save(self) -> None:
        """Write a checkpoint of the run as it is now, and delete those that are too old."""
        save_checkpoint(self.folder, self.policy, self.learner, self.progress, self.parts)
        if self.processes.leads:
            drop_old(self.folder, self.config.run.keep_checkpoints)

    def _due(self, every: int) -> bool:
        return self.finished or (every > 0 and self.progress.update % every == 0)

    def _update_or_save(self) -> tuple[Record, Collected]:
        """Do one update; where it fails before anything was learned, keep what came before it in a checkpoint."""
        try:
            return self._update()
        except (PromptTooLong, TrainingDiverged, WorkerLost) as error:
            if not isinstance(error, TrainingDiverged) or error.steps_taken == 0:
                self.save()
            raise

    def _update(self) -> tuple[Record, Collected]:
        """Do one update and return its record and what was collected for it."""
        started = perf_counter()
        self._hand_over(self.chat, self.config.model.temperature)
        handed_over = perf_counter()
        version, collected = self._collected()
        check_versions(collected.groups, version)
        self.practice.keep(collected, self.progress.tasks)
        groups = self.lessons(collected)
        learning = perf_counter()
        update = self.progress.update + 1
        learned: dict[str, float | None] = {}
        if any(trajectory.num_tokens for group in groups for trajectory in group.trajectories):
            batch = collate(groups, layout=self.config.learn.layout, edges=edges_by_task(collected))
            seed = derive_seed(self.config.run.seed, "update", update)
            scale = lr_scale(share_done(self.progress, self.config.run), self.config.learn)
            as_many = as_selected(self.collector.search, self.config.search, groups)
            learned |= self.learner.update(batch, seed=seed, as_many=as_many, lr_scale=scale)
            note_advantages(collected, groups, batch, self.learner.advantages, self.config, self.collector.search)
        self.progress = Progress(
            update,
            self.progress.tasks + len(collected.groups),
            self.progress.sampled_tokens + collected.spent.sampled_tokens,
            self.progress.prompt_tokens + collected.spent.prompt_tokens,
            self.progress.optimizer_steps + int(learned.get("optimizer_steps") or 0),
        )
        now = perf_counter()
        seconds = collected.seconds | {"update": now - learning, "all": now - started}
        # The engine answers there too.
        seconds["model"] += handed_over - started
        record = update_record(self.collector.search, self.progress, collected, groups, learned, seconds)
        record |= self.practice.signs() | self._prompt_signs(collected.groups)
        behind = {"weights_behind": update - 1 - version} if self.config.run.overlap else {}
        return record | self.collector.signs() | behind, collected

    def _collected(self) -> tuple[int, Collected]:
        """Return what the update learns from, after the version of the weights that it was sampled by.

        With overlap the search for the next update begins here. None does across a checkpoint, after which a run that
        goes on could not repeat it.
        """
        run, update = self.config.run, self.progress.update
        with self.learner.sampling():
            if self._ahead is None:
                version, collected = update, self._collect()
            else:
                (version, finish), self._ahead = self._ahead, None
                collected = side_by_side(self.processes.each(finish))
            if run.overlap and update + 1 < run.updates and (update + 1) % run.checkpoint_every:
                begun: list[Callable[[], Collected]] = []
                tasks = self.progress.tasks + len(collected.groups)
                after = replace(self.progress, update=update + 1, tasks=tasks)
                self.processes.each(lambda: begun.append(self._begin(after)))
                self._ahead = update, begun[0]
        return version, collected

    def _begin(self, progress: Progress) -> Callable[[], Collected]:
        """Begin this process's share of the search for an update, and return what waits for it."""
        own = self.processes.share(self.config.search.groups)
        plainly = share_done(progress, self.config.run) >= self.config.search.search_until
        return self.collector.begin(progress.tasks + own.start, len(own), plainly=plainly)

    def _collect(self) -> Collected:
        """Search rounds of instances until an update has enough."""
        run, first = self.config.run, self.progress.tasks
        before = counted(self.progress, run)
        collected = self._round(first, before)
        while not self._enough(collected, spent := before + counted(collected.spent, run)):
            collected += self._round(first + len(collected.groups), spent)
        return collected

    def _enough(self, collected: Collected, spent: float) -> bool:
        """Whether an update needs no more instances once the run has counted as many tokens."""
        if self._tokens_spent(spent):
            return True
        wanted = self.config.run.update_trajectories
        if wanted is not None:
            return sum(len(group.trajectories) for group in self.lessons(collected)) >= wanted
        end = update_end(self.config.run, self.token_targets, self.progress.update)
        return end is None or spent >= end

    def _round(self, first: int, spent: float) -> Collected:
        """Search as many instances as there are groups, fewer where a limit of tokens is reached before.

        Args:
            first: Number of the first instance, and of those before it in the run.
            spent: Tokens that these took.
        """
        run = self.config.run
        starts = self.practice.starts(first, self.config.search.groups)
        end = update_end(run, self.token_targets, self.progress.update)
        limits = [Limit(tokens, margin) for tokens, margin in ((self.total_tokens, 4), (end, 1)) if tokens is not None]
        if not limits:
            return self._search(first, starts)
        count, least = partial(counted, run=run), self.processes.size
        return search_within(limits, self._search, first, starts, count=count, spent=spent, least=least)

    def _search(self, first: int, starts: Sequence[Moment | None]) -> Collected:
        """Search an instance from each start, each process its share, and return what all of them brought."""
        own = self.processes.share(len(starts))
        mine = starts[own.start : own.stop]
        plainly = share_done(self.progress, self.config.run) >= self.config.search.search_until
        return side_by_side(
            self.processes.each(lambda: self.collector.collect(first + own.start, len(own), mine, plainly=plainly))
        )

    def _prompt_signs(self, groups: Sequence[Group]) -> dict[str, float]:
        """Return how much answers depend on their prompts; a forward pass for every pair, so only now and then."""
        every = self.config.run.eval_every
        if every == 0 or self.progress.update % every:
            return {}
        with self.learner.sampling():
            return self.processes.first(lambda: prompt_signs(self.learner, groups))

    def _hand_over(self, chat: ChatPolicy, temperature: float) -> None:
        """Give an engine the weights as they are now; where it then samples by others, keep a checkpoint and stop."""
        # What samples from the learner's own model has its weights already.
        if self.host is not None and self.config.adapter_rank:
            hand_over_adapter(self.host, self.policy.model, version=self.progress.update)
        else:
            weights = () if self.host is None else self.learner.weights()
            chat.engine.load_weights(weights, version=self.progress.update)
        try:
            check_parity(chat.engine, self.learner, self.config.run.parity_tolerance, temperature=temperature)
        except EngineFailed:
            self.save()
            raise

    def _evaluate(self) -> None:
        """Have the held-out instances played, where there are workers by these, and write down what it came to."""
        run, remote, held_out = self.config.run, self.remote, self.held_out
        chat, heat = (self.eval_chat, run.eval_temperature) if remote is None else (self.chat, self.learner.temperature)
        self._hand_over(chat, heat)

        def played(seed: int) -> Examined:
            if remote is None:
                return examine(held_out.pool, self.eval_chat, tasks=held_out.tasks, seed=seed)
            return reduce(add, self.processes.each(lambda: remote.examine(held_out, seed)))

        ask = partial(evaluation_record, held_out, played, run, self.progress)
        try:
            with self.learner.sampling():
                # The workers of all processes take part, and without workers the first process alone.
                record = self.processes.first(ask) if remote is None else ask()
        except WorkerLost:
            self.save()
            raise
        self.log.evaluation(record | self.collector.signs())
