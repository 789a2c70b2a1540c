"""RolloutWorker: searches and evaluations of a run with its own environments and engine; it knows nothing of Ray.

Everything random in a tree derives from the run's seed and the instance's number, so no result depends on the worker.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.collect import Collected, Collector
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.play import Examined, examine
from tsr_gym.agents.episodes.start_states import StartState
from tsr_gym.agents.models.language_model import (
    LORA,
    hand_over_adapter,
    load_policy,
    pick_device,
    policy_host,
    restore_adapter,
)
from tsr_gym.agents.models.lora import merged_weights
from tsr_gym.agents.policies.engine import Completion, find_engine
from tsr_gym.agents.policies.parameters import replace_parameters
from tsr_gym.agents.raters import make_rater
from tsr_gym.agents.runs.parity import continue_prompts
from tsr_gym.snapshots import Snapshot

Files = Mapping[str, bytes]
Weights = Mapping[str, np.ndarray[Any, Any]]
ResultT = TypeVar("ResultT", Collected, Examined)


class Job(NamedTuple):
    """Instances to search.

    Attributes:
        first: Number of the first one in the run's sequence.
        starts: State at which each begins, None for the instance's own start.
        chance: That failed play is searched.
    """

    first: int
    starts: tuple[StartState | None, ...]
    chance: float


class Exam(NamedTuple):
    """Held-out instances to play.

    Attributes:
        tasks: Their seeds.
        starts: Snapshot at which each begins.
        seed: Seed from which, together with the task's, samples and random numbers derive.
    """

    tasks: tuple[int, ...]
    starts: tuple[Snapshot, ...]
    seed: int


class WorkerResult(NamedTuple, Generic[ResultT]):
    """The result of a job.

    Attributes:
        result: Searched or played instances.
        weight_version: Version of the weights that were sampled from.
        continuations: The engine's continuations of the fixed prompts with these weights, see `continue_prompts`.
        seconds: Seconds that the worker took.
    """

    result: ResultT
    weight_version: int
    continuations: tuple[Completion, ...]
    seconds: float


class RolloutWorker:
    """Search and play instances of a run.

    Args:
        config: Settings of the run.
        files: Files of the model's folder, see `files_of`.
    """

    def __init__(self, config: TrainConfig, files: Files) -> None:
        torch.set_num_threads(config.model.threads)
        with TemporaryDirectory() as name:
            folder = Path(name)
            for path, data in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data)
            # Where a host samples, this copy only collects the weights that are handed over.
            device = pick_device(config.model.device if find_engine(config.model.engine).host is None else "cpu")
            policy = load_policy(folder, device=device, lora=config.lora)
            if (folder / LORA).exists():
                restore_adapter(policy.model, folder)
            self.host = policy_host(config.model, policy.model, folder, adapter_rank=config.adapter_rank)
        # The same calls as in `build_parts`, so that a worker grows the trees that the run itself would grow.
        player = ModelPlayer(config.env, config.task, config.model, policy, self.host)
        pool = player.pool(config.task.train_split, config.search)
        chat = player.chat_about(pool.base, temperature=config.model.temperature)
        rater = None if config.search.rater is None else make_rater(config.search.rater, chat=chat)
        self.engine = chat.engine
        examined = ModelPlayer(config.env, config.task.examined, config.model, policy, self.host)
        self.held_out = examined.pool(config.task.eval_split)
        self.eval_chat = examined.chat_about(self.held_out.base, temperature=config.run.eval_temperature)
        self.searcher = player.searcher(pool.base, config.search)
        self.config = config
        self.model = policy.model
        self.collector = Collector(config.search, pool, chat, seed=config.run.seed, rater=rater, searcher=self.searcher)
        self.weight_version: int | None = None
        self.continuations: tuple[Completion, ...] = ()

    def take(self, weights: Weights, version: int) -> None:
        """Sample from other weights from now on.

        Args:
            weights: Weights, see `weights_of`.
            version: Their version.
        """
        # Copied one by one: arrays of an object store are read-only, and torch's tensors cannot be.
        tensors = ((name, torch.tensor(array)) for name, array in weights.items())
        replace_parameters(self.model, tensors)
        if self.host is not None and self.config.adapter_rank:
            hand_over_adapter(self.host, self.model, version=version)
        else:
            self.engine.load_weights(() if self.host is None else merged_weights(self.model), version=version)
        # These engines sample from the same model. Loading no weights drops their cached keys and values.
        for chat in filter(None, (self.eval_chat, self.searcher)):
            chat.engine.load_weights((), version=version)
        self.continuations = tuple(continue_prompts(self.engine, self.model.config))
        self.weight_version = version

    def work(self, job: Job | Exam) -> WorkerResult[Collected] | WorkerResult[Examined]:
        """Do a job with the weights that were taken last."""
        return self.examine(job) if isinstance(job, Exam) else self.search(job)

    def search(self, job: Job) -> WorkerResult[Collected]:
        """Search some instances."""
        started = perf_counter()
        collected = self.collector.collect(job.first, len(job.starts), job.starts, chance=job.chance)
        return WorkerResult(collected, self.engine.weight_version, self.continuations, perf_counter() - started)

    def examine(self, exam: Exam) -> WorkerResult[Examined]:
        """Play some held-out instances."""
        started = perf_counter()
        self.held_out.keep(dict(zip(exam.tasks, exam.starts, strict=True)))
        examined = examine(self.held_out, self.eval_chat, tasks=exam.tasks, seed=exam.seed)
        return WorkerResult(
            examined, self.eval_chat.engine.weight_version, self.continuations, perf_counter() - started
        )


def files_of(model_dir: Path, *, adapter: bool) -> Files:
    """Return the contents of all files of a model's folder by their names.

    Args:
        model_dir: The folder.
        adapter: Whether to include its adapter, if it has one; without it, the model is the merged one.
    """
    paths = [path for path in sorted(model_dir.rglob("*")) if path.is_file()]
    files = {path.relative_to(model_dir).as_posix(): path.read_bytes() for path in paths}
    return {name: data for name, data in files.items() if adapter or not name.startswith(f"{LORA}/")}


def weights_of(model: Any) -> Weights:
    """Return copies of the trained weights of a model: with LoRA its low-rank matrices, otherwise all weights.

    Copies, because memory that a numpy array shares cannot be freed, and a learner over several processes frees the
    whole model after each search.
    """
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    return {name: weight.detach().to("cpu", copy=True).numpy() for name, weight in trained.items()}
