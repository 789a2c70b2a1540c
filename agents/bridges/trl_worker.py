"""TRL's asynchronous trainer: a rollout worker that searches with its weights while it trains.

Written for TRL 1.16's ``experimental.async_grpo.AsyncGRPOTrainer``; it does not import TRL.
"""

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tsr_gym.agents.bridges.rows import TrainedRow, trained_rows
from tsr_gym.agents.episodes.collect import Collector, Place
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.learning.advantages.choose_estimator import choose_estimator
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.errors import EngineFailed


class AsyncRow(NamedTuple):
    """A row in the form of TRL's ``RolloutSample``, whose fields these are."""

    prompt: list[dict[str, str]]
    completion: list[dict[str, str]]
    input_ids: np.ndarray[Any, Any]
    completion_mask: np.ndarray[Any, Any]
    old_log_probs: np.ndarray[Any, Any]
    advantage: float
    model_version: int
    group_id: int
    metrics: dict[str, float]
    enqueued_at: float | None = None


class TsrRolloutWorker:
    """Search in a thread of the trainer's process; pass it as ``rollout_worker`` and as ``weight_transfer``.

    TRL has one advantage per row. A row whose tokens have different advantages is repeated once for each of them, with
    a mask of its tokens. The loss is a sum over tokens, so it equals the loss with advantages per token, and TRL
    computes equal prefixes once. Weights arrive between two rounds of searches, never within one, so that a row has one
    version.

    Args:
        policy: Samples; a copy of the trainer's model on another device, which receives the trainer's weights.
        env: Gymnasium id or short name.
        estimator: Computes the advantages, such as ``"grpo"`` or ``"tree_backup"``.
        task: Settings of the environment.
        search: Settings of the search, with the number of trajectories per group and of groups per round.
        model: Prompt and history; its temperature has to be the trainer's.
        seed: All randomness derives from it.
        first: Number of the first instance in the sequence of the seed.
        most: Most rows that wait for the trainer.

    Raises:
        ConfigError: A setting is unknown, or the estimator needs a critic.
    """

    def __init__(
        self,
        policy: LanguageModel,
        env: str,
        *,
        estimator: str = "grpo",
        task: TaskConfig | None = None,
        search: SearchConfig | None = None,
        model: ModelConfig | None = None,
        seed: int = 0,
        first: int = 0,
        most: int = 1024,
    ) -> None:
        task, search, model = task or TaskConfig(), search or SearchConfig(), model or ModelConfig()
        player = ModelPlayer(env, task, model, policy)
        pool = player.pool(task.train_split, search)
        self.engine: Any = (chat := player.chat_about(pool.base, temperature=model.temperature)).engine
        self.collector = Collector(search, pool, chat, seed=seed)
        self.estimator = choose_estimator(estimator, critic=False).estimator
        self.rollout_buffer: queue.Queue[AsyncRow] = queue.Queue(most)
        self.metrics_queue: queue.Queue[dict[str, Any]] = queue.Queue()
        self.model_version = 0
        self._next = first
        self._weights, self._open, self._stopped = threading.Lock(), threading.Event(), threading.Event()
        self._open.set()
        self._failed: Exception | None = None
        self._beat = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="tsr-rollouts", daemon=True)

    def start(self) -> None:
        """Begin to search."""
        self._beat = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """End after the current round of searches."""
        self._stopped.set()
        self._open.set()
        if self._thread.is_alive():
            self._thread.join()

    def update_model_version(self, model_version: int) -> None:
        """Take the trainer's number of the current weights."""
        self.model_version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Check that the searches run, and that one ended within some seconds.

        Raises:
            EngineFailed: The searches have failed, or none has ended for so long.
        """
        if self._failed is not None:
            raise EngineFailed(f"the searches have failed: {self._failed}") from self._failed
        quiet = time.monotonic() - self._beat
        if quiet > stale_after_s:
            raise EngineFailed(f"no search has ended for {quiet:.0f} s: wanted less than {stale_after_s:.0f} s")

    def init_weight_transfer(self) -> None:
        """Do nothing: weights are passed within this process."""

    def pause(self) -> None:
        """Wait for the end of the current round of searches, and block the next one."""
        self._open.clear()
        self._weights.acquire()

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        """Take the trainer's weights, by their names in its model."""
        # The trainer reports its version only after `resume`, when a search may already have begun.
        self.model_version += 1
        self.engine.load_weights(iterator, version=self.model_version)

    def resume(self) -> None:
        """Let the searches continue."""
        self._weights.release()
        self._open.set()

    def destroy(self) -> None:
        """Do nothing: there is no connection."""

    def _work(self) -> None:
        try:
            while not self._stopped.is_set():
                self._open.wait()
                for row in self._round():
                    self._put(row)
        except Exception as error:  # Raised by `check_health`, in the trainer's thread.
            self._failed = error

    def _round(self) -> list[AsyncRow]:
        places = [Place(self._next + ahead) for ahead in range(self.collector.config.groups)]
        with self._weights:
            version = self.model_version
            collected = self.collector.collect_at(places)
        self._next += len(places)
        self._beat = time.monotonic()
        groups = zip(places, trained_rows(collected.groups, self.estimator), strict=True)
        return [
            sample
            for place, group in groups
            for rows in group
            for row in rows
            for sample in async_rows(row, version=version, group=place.number)
        ]

    def _put(self, row: AsyncRow) -> None:
        while not self._stopped.is_set():
            try:
                self.rollout_buffer.put(row._replace(enqueued_at=time.time()), timeout=0.2)
            except queue.Full:
                # A worker that waits for the trainer is healthy.
                self._beat = time.monotonic()
            else:
                return


def async_rows(trained: TrainedRow, *, version: int, group: int) -> Iterable[AsyncRow]:
    """Yield a row for each distinct advantage of a row, with a mask of the tokens that have it.

    Args:
        trained: The row, with advantages.
        version: Of the weights that sampled it.
        group: Number of its group.
    """
    row, advantages = trained.row, np.array(trained.advantages)
    sampled, ids = np.array(row.completion_mask) > 0, np.array(row.input_ids)
    metrics = {"reward": row.total_reward, "success": float(row.success), "turns": float(len(row.starts))}
    prompt = [{"role": "user", "content": f"instance {group}"}]
    logprobs = np.array(row.logprobs, dtype=np.float32)
    for value in np.unique(advantages[sampled]).tolist():
        mask = (sampled & (advantages == value)).astype(np.int64)
        yield AsyncRow(prompt, [], ids, mask, logprobs, value, version, group, metrics)
