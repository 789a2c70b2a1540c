"""RolloutWorker: searches and evaluations of a run, with environments and an engine of its own; knows nothing of Ray.

Everything random in a tree derives from the run's seed and the instance's number, so it does not matter who grows it.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from tsr_gym.agents.episodes.collect import Collected, Collector
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.play import Examined, examine
from tsr_gym.agents.episodes.start_states import Moment
from tsr_gym.agents.models.language_model import (
    LORA,
    hand_over_adapter,
    load_policy,
    pick_device,
    policy_host,
    restore_adapter,
)
from tsr_gym.agents.models.lora import merged_weights
from tsr_gym.agents.policies.engine import Completion
from tsr_gym.agents.policies.transformers_engine import replace_parameters
from tsr_gym.agents.raters import make_rater
from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.agents.runs.parity import continued
from tsr_gym.snapshots import Snapshot

Files = Mapping[str, bytes]
Weights = Mapping[str, np.ndarray[Any, Any]]
FoundT = TypeVar("FoundT", Collected, Examined)


class Job(NamedTuple):
    """Instances to search.

    Attributes:
        first: Number of the first one in the run's sequence.
        starts: Moment at which each begins, None for its own start.
        plainly: Whether to play as many episodes in place of the searches.
    """

    first: int
    starts: tuple[Moment | None, ...]
    plainly: bool


class Exam(NamedTuple):
    """Held-out instances to play.

    Attributes:
        tasks: Their seeds.
        starts: Where each begins.
        seed: From which, and from each task's own, its samples and dice derive.
    """

    tasks: tuple[int, ...]
    starts: tuple[Snapshot, ...]
    seed: int


class Brought(NamedTuple, Generic[FoundT]):
    """What a worker brought.

    Attributes:
        found: Of the instances.
        weight_version: Of the weights that it sampled by.
        said: How its engine continued the fixed prompts after it took these weights.
        seconds: That it worked.
    """

    found: FoundT
    weight_version: int
    said: tuple[Completion, ...]
    seconds: float


class RolloutWorker:
    """Search and play instances as a run would.

    Args:
        config: Of the run.
        files: Of the model's folder, by their names, as `files_of` returns them.
    """

    def __init__(self, config: TrainConfig, files: Files) -> None:
        torch.set_num_threads(config.model.threads)
        with TemporaryDirectory() as name:
            folder = Path(name)
            for path, data in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data)
            # Beside vLLM it only collects what is handed over.
            device = pick_device("cpu" if config.model.engine == "vllm" else config.model.device)
            policy = load_policy(folder, device=device, lora=config.lora)
            if (folder / LORA).exists():
                restore_adapter(policy.model, folder)
            self.host = policy_host(config.model, policy.model, folder, adapter_rank=config.adapter_rank)
        player = ModelPlayer(config.env, config.task, config.model, policy, self.host)
        pool = player.pool(config.task.train_split, config.search)
        chat = player.chat_about(pool.base, temperature=config.model.temperature)
        rater = None if config.search.rater is None else make_rater(config.search.rater, chat=chat)
        self.engine = chat.engine
        examined = ModelPlayer(config.env, config.task.held_out, config.model, policy, self.host)
        self.held_out = examined.pool(config.task.eval_split)
        self.eval_chat = examined.chat_about(self.held_out.base, temperature=config.run.eval_temperature)
        self.config = config
        self.model = policy.model
        self.collector = Collector(config.search, pool, chat, seed=config.run.seed, rater=rater)
        self.weight_version: int | None = None
        self.said: tuple[Completion, ...] = ()

    def take(self, weights: Weights, version: int) -> None:
        """Sample by other weights from now on.

        Args:
            weights: As `weights_of` returns them.
            version: Of the weights.
        """
        # Copied one by one, because an object store's arrays cannot be written to, which torch's tensors could be.
        tensors = ((name, torch.tensor(array)) for name, array in weights.items())
        replace_parameters(self.model, tensors)
        if self.host is not None and self.config.adapter_rank:
            hand_over_adapter(self.host, self.model, version=version)
        else:
            self.engine.load_weights(() if self.host is None else merged_weights(self.model), version=version)
        # It samples from the same model, and forgets what it remembers of the old one.
        self.eval_chat.engine.load_weights((), version=version)
        self.said = tuple(continued(self.engine, self.model.config))
        self.weight_version = version

    def work(self, job: Job | Exam) -> Brought[Collected] | Brought[Examined]:
        """Do some work, by the weights that were taken last."""
        return self.examine(job) if isinstance(job, Exam) else self.search(job)

    def search(self, job: Job) -> Brought[Collected]:
        """Search some instances."""
        started = perf_counter()
        collected = self.collector.collect(job.first, len(job.starts), job.starts, plainly=job.plainly)
        return Brought(collected, self.engine.weight_version, self.said, perf_counter() - started)

    def examine(self, exam: Exam) -> Brought[Examined]:
        """Play some held-out instances."""
        started = perf_counter()
        self.held_out.keep(dict(zip(exam.tasks, exam.starts, strict=True)))
        examined = examine(self.held_out, self.eval_chat, tasks=exam.tasks, seed=exam.seed)
        return Brought(examined, self.eval_chat.engine.weight_version, self.said, perf_counter() - started)


def files_of(model_dir: Path, *, adapter: bool) -> Files:
    """Return the files of a model's folder by their names.

    Args:
        model_dir: The folder.
        adapter: Whether to go on with its low-rank matrices, where it has them; without, it is the merged model.
    """
    found = [path for path in sorted(model_dir.rglob("*")) if path.is_file()]
    named = {path.relative_to(model_dir).as_posix(): path.read_bytes() for path in found}
    return {name: data for name, data in named.items() if adapter or not name.startswith(f"{LORA}/")}


def weights_of(model: Any) -> Weights:
    """Return copies of what changes of a model while it is trained: with LoRA low-rank matrices, otherwise all weights.

    Memory that an array has shared cannot be freed any more, and that of a whole model is freed after each search where
    several processes learn.
    """
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    return {name: weight.detach().to("cpu", copy=True).numpy() for name, weight in trained.items()}
