"""Trainer: the loop of a run: hand over the weights, collect, learn, write, evaluate, save.

A run can be stopped at any time, and a resumed run repeats bit for bit what it would have done without the stop.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from time import perf_counter

import torch

from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.collect import ChosenSearch, Collected, edges_by_task
from tsr_gym.agents.episodes.play import Examined, examine
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.lessons.filters import Filtered
from tsr_gym.agents.lessons.groups import choose_groups
from tsr_gym.agents.models.language_model import hand_over_adapter, load_policy
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.processes import ALONE, Processes
from tsr_gym.agents.runs.checkpoint import Stateful, drop_old, save_checkpoint
from tsr_gym.agents.runs.health import prompt_metrics
from tsr_gym.agents.runs.log import Record, RunLog, Watch
from tsr_gym.agents.runs.parity import check_parity, check_versions
from tsr_gym.agents.runs.parts import FIRST, build_parts
from tsr_gym.agents.runs.progress import Progress, counted, lr_scale, share_done
from tsr_gym.agents.runs.record import evaluation_record, note_advantages, update_record
from tsr_gym.agents.runs.sampling import Sampler
from tsr_gym.agents.runs.solutions import SolutionStore
from tsr_gym.agents.runs.workers.on_ray import OFF, WorkerConfig
from tsr_gym.agents.teaching.imitation import fit_rows
from tsr_gym.errors import EngineFailed, PromptTooLong, TrainingDiverged, WorkerLost
from tsr_gym.seeds import derive_seed


class Trainer:
    """A training run in a folder; made by `start_run` or `resume_run`.

    The folder holds ``run.toml``, ``metrics.jsonl`` (a line per update), ``evaluations.jsonl``, ``trees/``,
    ``checkpoints/``, ``tensorboard/``, ``run_id`` and, for an objective with a KL term, ``reference/``. All that is
    random in an update derives from the run's seed and from counts that a checkpoint holds.

    Args:
        config: All settings.
        folder: Folder of the run.
        model_dir: Folder of the language model to begin with, or to continue with.
        token_targets: Counted tokens after each update, for a run that matches another; None for other runs.
        processes: Processes that train together. Each searches its share of the instances, with the whole model in its
            memory meanwhile, and learns with its part of the parameters; the first one writes and evaluates.
        workers: Where to search.

    Attributes:
        parts: Policy, learner, collector and the other parts of the run.
        progress: Updates, instances and tokens so far.
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
        self.config = config
        self.folder = folder
        self.processes = processes
        self.progress = Progress()
        self.parts = build_parts(config, folder, model_dir, processes, workers)
        self.select = choose_groups(config.lessons)
        self.sampler = Sampler(config, self.parts.collector, self.parts.learner, self.select, token_targets, processes)
        self.solutions = SolutionStore(config.store)
        self.log = RunLog(folder, writes=processes.leads)
        self._stage = "beginning"

    @property
    def finished(self) -> bool:
        """Whether the run has done all its updates, or sampled all its tokens."""
        run, progress = self.config.run, self.progress
        return progress.update >= run.updates or self.sampler.is_used_up(counted(progress, run))

    @property
    def doing(self) -> str:
        """What the run does at present, and how far it is, for a reader in another thread."""
        parts, update = self.parts, self.progress.update + 1
        if self._stage == "learning":
            return f"update {update}: learning, {parts.learner.num_read:,} rows read"
        chat = parts.eval_chat if self._stage == "evaluating" else parts.chat
        what = "playing held-out instances" if self._stage == "evaluating" else f"update {update}: {self._stage}"
        return f"{what}, {chat.num_calls:,} calls of the model and {chat.num_tokens:,} tokens so far"

    @property
    def stateful(self) -> list[Stateful]:
        """What a checkpoint holds in addition to weights, optimizers and counts."""
        return [self.sampler.starts, self.sampler.prices, self.solutions]

    def run(self, *, watch: Watch = lambda event, record: None, stop: Callable[[], bool] = lambda: False) -> bool:
        """Train until the last update, or until the last of the tokens that the run may sample.

        Both callbacks are called in the thread that trains. An error that they raise ends the run; the folder stays
        valid, and the run can be resumed from its last checkpoint.

        Args:
            watch: Called as ``watch(event, record)`` after each line of a log is written: ``"update"`` with a line of
                ``metrics.jsonl``, ``"evaluation"`` with a line of ``evaluations.jsonl``. Both have ``step``, the number
                of updates done. A new run begins with an evaluation, of step 0; further ones follow the updates that
                `RunConfig.eval_every` names, after their records. With several processes only the first one calls it.
            stop: Called once after each update, and after the evaluation that belongs to it, in every process. If it
                returns True in any of them, the run writes a checkpoint and ends early.

        Returns:
            True if the run is finished, False if `stop` ended it early.

        Raises:
            TrainingDiverged: A loss or gradient is not finite.
            PromptTooLong: An episode outgrew the model's context.
            EngineFailed: The engine does not sample from the weights that are trained.
            WorkerLost: Workers of Ray failed too often.
            CheckpointError: A file could not be written; earlier checkpoints are intact.
        """
        with self.log.opened(self.progress.update, watch):
            evaluations = self.processes.first(self.log.evaluations.read)
            # A resumed run may have been killed between its last update and the evaluation of that update.
            if not evaluations or (
                evaluations[-1]["step"] < self.progress.update and self._is_due(self.config.run.eval_every)
            ):
                self._evaluate()
            while not self.finished:
                record, collected = self._update()
                self.log.update(record)
                # An update from the weights of the latest checkpoint proves them.
                self._drop_old()
                if self._is_due(self.config.run.eval_every):
                    self._evaluate()
                stopped = any(self.processes.each(stop))
                if stopped or self._is_due(self.config.run.checkpoint_every):
                    self.log.save_trees(self.progress.update, collected.trees[: self.config.run.save_trees])
                    self.save()
                    if self.finished:
                        self._drop_old()
                if stopped:
                    return self.finished
        return True

    def save(self) -> None:
        """Write a checkpoint of the run as it is now."""
        save_checkpoint(self.folder, self.parts.policy, self.parts.learner, self.progress, self.stateful)

    def _drop_old(self) -> None:
        if self.processes.leads:
            drop_old(self.folder, self.config.run.keep_checkpoints)

    def _is_due(self, every: int) -> bool:
        return self.finished or (every > 0 and self.progress.update % every == 0)

    def _update(self) -> tuple[Record, Collected]:
        """Do one update; return its record, and the trajectories and trees that it collected.

        If it fails before the weights have changed, a checkpoint is written first. What fails later belongs to the
        update, and nothing of it is kept.
        """
        started, self._stage = perf_counter(), "sampling"
        try:
            parity_tokens = self._hand_over(self.parts.chat, self.config.model.temperature)
            if self.parts.searcher is not None:
                # It samples from the same weights as the policy that was checked.
                self.parts.searcher.engine.load_weights((), version=self.progress.update)
            handed_over = perf_counter()
            version, collected = self.sampler.collect(self.progress)
            check_versions(collected.groups, version)
            groups = self.select(collected)
            learning, self._stage = perf_counter(), "learning"
            learned = self._learn(collected, groups)
        except (PromptTooLong, TrainingDiverged, WorkerLost) as error:
            if not isinstance(error, TrainingDiverged) or error.steps_taken == 0:
                self.save()
            raise
        # Counts move on only after the weights have changed. A checkpoint that an error above writes is therefore the
        # state before this update, and a resumed run does all of it again.
        update = self.progress.update + 1
        self.sampler.starts.keep(collected, self.progress.tasks)
        self.sampler.prices.keep(collected.tried)
        self.solutions.keep(collected)
        self.progress = Progress(
            update,
            self.progress.tasks + len(collected.groups),
            self.progress.sampled_tokens + collected.spent.sampled_tokens,
            self.progress.prompt_tokens + collected.spent.prompt_tokens,
            self.progress.optimizer_steps + int(learned.get("optimizer_steps") or 0),
        )
        fit_steps = self._fit()
        # Before anything of the update is written, because a checkpoint of broken weights could replace the last good
        # one.
        self.parts.learner.check_weights()
        self.progress = replace(self.progress, optimizer_steps=self.progress.optimizer_steps + fit_steps)
        now = perf_counter()
        seconds = collected.seconds | {"update": now - learning, "all": now - started}
        # The parity check samples from the engine, so the hand-over counts as time of the model.
        seconds["model"] += handed_over - started
        record = update_record(self.parts.collector.search, self.progress, collected, groups, learned, seconds)
        record |= {"parity_tokens": parity_tokens} | self.sampler.starts.metrics() | self.sampler.prices.metrics()
        record |= self.solutions.metrics(fit_steps)
        record |= self._prompt_metrics(collected.groups)
        behind = {"weights_behind": update - 1 - version} if self.config.run.overlap else {}
        return record | self.parts.collector.metrics() | behind, collected

    def _learn(self, collected: Collected, groups: Filtered) -> dict[str, float | None]:
        """Change the weights by the groups that were selected, and return the learner's metrics."""
        # A learning rate of 0 leaves all learning to the fits.
        if self.config.store.fit_passes and not self.config.learn.lr:
            return {}
        if not any(trajectory.num_tokens for group in groups for trajectory in group.trajectories):
            return {}
        config, learner, search = self.config, self.parts.learner, self.parts.collector.search
        batch = collate(groups, layout=config.learn.layout, edges=edges_by_task(collected))
        learned = learner.update(
            batch,
            seed=derive_seed(config.run.seed, "update", self.progress.update + 1),
            as_many=_num_selected(search, config.search, groups),
            lr_scale=lr_scale(share_done(self.progress, config.run), config.learn),
        )
        note_advantages(collected, groups, batch, learner.advantages, config, search)
        return {**learned}

    def _fit(self) -> int:
        """Fit the policy to the store of solutions where it is due, and return the optimizer steps taken."""
        store, parts = self.config.store, self.parts
        steps = self.solutions.steps_due(last=self.finished)
        if not steps:
            return 0
        model = parts.policy.model
        if store.fit_from == "first":
            model.load_state_dict(load_policy(self.folder / FIRST, device=model.device).model.state_dict())
        seed = derive_seed(self.config.run.seed, "fit", self.progress.update)
        rows = self.solutions.rows()
        lr = self.config.learn.lr if store.fit_lr is None else store.fit_lr
        fit_rows(model, rows, steps=steps, lr=lr, batch=store.fit_batch, seed=seed)
        # The moments of the policy's optimizer belong to other weights.
        parts.learner.optimizers["policy"].state.clear()
        self.solutions.fitted = len(rows)
        return steps

    def _prompt_metrics(self, groups: Sequence[Group]) -> dict[str, float]:
        """Return how much answers depend on their prompts, in updates that are evaluated.

        Each pair of a prompt and an answer takes a forward pass, too much for every update.
        """
        every = self.config.run.eval_every
        if every == 0 or self.progress.update % every:
            return {}
        with self.parts.learner.sampling():
            return self.processes.first(lambda: prompt_metrics(self.parts.learner, groups))

    def _hand_over(self, chat: ChatPolicy, temperature: float) -> int:
        """Give an engine the current weights, and return how many tokens it took to check that it samples from them.

        If it does not, the run is saved and the error raised.
        """
        host, learner, version = self.parts.host, self.parts.learner, self.progress.update
        if host is not None and self.config.adapter_rank:
            hand_over_adapter(host, self.parts.policy.model, version=version)
        else:
            # Without a host the engine samples from the learner's own model and needs only the new version.
            chat.engine.load_weights(() if host is None else learner.weights(), version=version)
        try:
            return check_parity(chat.engine, learner, self.config.run.parity_tolerance, temperature=temperature)
        except EngineFailed:
            self.save()
            raise

    def _evaluate(self) -> None:
        """Play the held-out instances without search, in this process or in the workers, and write the record."""
        run, parts, remote = self.config.run, self.parts, self.parts.remote
        self._stage = "evaluating"
        if remote is None:
            parity_tokens = self._hand_over(parts.eval_chat, run.eval_temperature)
        else:
            parity_tokens = self._hand_over(parts.chat, parts.learner.temperature)

        def play(seed: int) -> Examined:
            exam = parts.held_out
            if remote is None:
                return exam.spread(examine(exam.pool, parts.eval_chat, tasks=exam.distinct_tasks, seed=seed))
            return exam.spread(reduce(add, self.processes.each(lambda: remote.examine(exam, seed))))

        evaluate = partial(evaluation_record, parts.held_out, play, run, self.progress)
        try:
            with parts.learner.sampling():
                # Without workers the first process plays alone; with workers those of all processes take part.
                record = self.processes.first(evaluate) if remote is None else evaluate()
        except WorkerLost:
            self.save()
            raise
        self.log.evaluation(record | {"parity_tokens": parity_tokens} | parts.collector.metrics())


def _num_selected(search: ChosenSearch, config: SearchConfig, groups: Sequence[Group]) -> int | None:
    """Return how many trajectories the searches would have selected, if groups hold all leaves; else None.

    The learner then takes as many optimizer steps as for selected trajectories.
    """
    if search.harvest != "leaves":
        return None
    return sum(min(len(group.trajectories), config.trajectories + config.naive) for group in groups)
