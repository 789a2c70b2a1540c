"""TRL's asynchronous trainer: a rollout worker that searches beside it, with its weights.

Written for TRL 1.16's ``experimental.async_grpo.AsyncGRPOTrainer``, and needs nothing of TRL's.
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
    """Search in a thread of the trainer's process: hand it over as ``rollout_worker`` and as ``weight_transfer``.

    TRL knows one advantage per row. A row whose tokens have different ones is given once for each, with a mask of its
    own: the loss is a sum over tokens, so it is that of the advantages of tokens, and TRL computes equal beginnings
    once. Weights arrive between two rounds of searches, never within one, so that a row is of one version.

    Args:
        policy: Samples; a copy of the trainer's model on a device of its own, whose weights become the trainer's.
        env: Gymnasium id or short name.
        estimator: Whose advantages rows have, such as ``"grpo"`` or ``"tree_backup"``.
        task: What is played.
        search: How trajectories come to be: also how many make a group, and how many groups a round.
        model: How the model speaks; its temperature has to be the trainer's.
        seed: Everything random derives from it.
        first: Number of the first instance in the sequence that the seed decides.
        most: Rows that wait at most.

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
        """End after the round that is being searched."""
        self._stopped.set()
        self._open.set()
        if self._thread.is_alive():
            self._thread.join()

    def update_model_version(self, model_version: int) -> None:
        """Take the trainer's number for the weights that are live."""
        self.model_version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raise where the searches have failed, or nothing has come of them for so many seconds.

        Raises:
            EngineFailed: So it is.
        """
        if self._failed is not None:
            raise EngineFailed(f"the searches have failed: {self._failed}") from self._failed
        quiet = time.monotonic() - self._beat
        if quiet > stale_after_s:
            raise EngineFailed(f"no search has ended for {quiet:.0f} s: wanted less than {stale_after_s:.0f} s")

    def init_weight_transfer(self) -> None:
        """Do nothing: weights are handed over in this process."""

    def pause(self) -> None:
        """Wait for the end of the round that is being searched, and keep the next one from beginning."""
        self._open.clear()
        self._weights.acquire()

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        """Take the trainer's weights, by their names in its model."""
        # The trainer counts them only after searches may have gone on.
        self.model_version += 1
        self.engine.load_weights(iterator, version=self.model_version)

    def resume(self) -> None:
        """Let searches go on."""
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
        except Exception as error:  # Told by `check_health`, in the trainer's thread.
            self._failed = error

    def _round(self) -> list[AsyncRow]:
        places = [Place(self._next + ahead) for ahead in range(self.collector.config.groups)]
        with self._weights:
            version = self.model_version
            collected = self.collector.collect_at(places)
        self._next += len(places)
        self._beat = time.monotonic()
        found = zip(places, trained_rows(collected.groups, self.estimator), strict=True)
        return [
            one
            for place, group in found
            for rows in group
            for row in rows
            for one in async_rows(row, version=version, group=place.number)
        ]

    def _put(self, row: AsyncRow) -> None:
        while not self._stopped.is_set():
            try:
                self.rollout_buffer.put(row._replace(enqueued_at=time.time()), timeout=0.2)
            except queue.Full:
                # What waits for the trainer is not stale.
                self._beat = time.monotonic()
            else:
                return


def async_rows(one: TrainedRow, *, version: int, group: int) -> Iterable[AsyncRow]:
    """Return a row for each advantage that tokens of a row have, with a mask of these tokens.

    Args:
        one: The row, with advantages.
        version: Of the weights that sampled it.
        group: Number of its group.
    """
    row, advantages = one.row, np.array(one.advantages)
    sampled, ids = np.array(row.mask) > 0, np.array(row.input_ids)
    told = {"reward": row.total_reward, "success": float(row.success), "turns": float(len(row.starts))}
    prompt = [{"role": "user", "content": f"instance {group}"}]
    logprobs = np.array(row.logprobs, dtype=np.float32)
    for value in np.unique(advantages[sampled]).tolist():
        mask = (sampled & (advantages == value)).astype(np.int64)
        yield AsyncRow(prompt, [], ids, mask, logprobs, value, version, group, told)
