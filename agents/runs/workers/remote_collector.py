"""RemoteCollector: collect and examine, done by workers, with the groups and trees that one process would bring."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial, reduce
from operator import add
from time import perf_counter
from typing import Any, NamedTuple

from tsr_gym.agents.episodes.collect import Collected, choose_search, side_by_side, task_seed
from tsr_gym.agents.episodes.held_out import HeldOut
from tsr_gym.agents.episodes.play import Examined
from tsr_gym.agents.episodes.start_states import Moment
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.policies.engine import Completion, Engine
from tsr_gym.agents.processes import Processes
from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.agents.runs.parity import Parity, compared, continued, largest, why_apart
from tsr_gym.agents.runs.workers.dispatch import Dispatcher
from tsr_gym.agents.runs.workers.on_ray import RayCrew
from tsr_gym.agents.runs.workers.settings import WorkerConfig
from tsr_gym.agents.runs.workers.worker import Brought, Exam, Files, Job, RolloutWorker, weights_of
from tsr_gym.errors import ConfigError


class Task(NamedTuple):
    """Work with the weights to do it by, so that a worker that was started again cannot do it by others.

    Attributes:
        job: The work.
        tasks: Seeds of its instances.
        version: Of the weights.
        weights: Where they lie.
    """

    job: Job | Exam
    tasks: Sequence[int]
    version: int
    weights: Any


class RemoteCollector:
    """Search and play task instances in workers; the same as `Collector` for whoever asks.

    Every round, and every evaluation, is cut into as many parts as there are workers, and put together in the order of
    the instances. What comes back is refused unless it is of the wanted instances, was sampled by the weights as they
    are now, and comes from an engine that agrees with the learner.

    Args:
        config: Of the run.
        files: Of the folder of the model that it goes on with.
        settings: Of the workers.
        engine: Says of which version the weights are.
        learner: Whose weights they are. It may be spread over processes, each of which has workers of its own.
        make: Makes a worker.

    Raises:
        ConfigError: The engine is not one that each worker can have.
    """

    def __init__(
        self,
        config: TrainConfig,
        files: Files,
        settings: WorkerConfig,
        engine: Engine,
        learner: Learner,
        *,
        make: Callable[..., RolloutWorker] = RolloutWorker,
    ) -> None:
        if config.model.engine not in ("transformers", "vllm"):
            raise ConfigError(
                f"each worker of Ray has an engine of its own: wanted transformers or vllm, got {config.model.engine}"
            )
        self.search = choose_search(config.search)
        self.config = config
        self.engine = engine
        self.learner = learner
        self.crew = RayCrew(settings.share(learner.processes), make, (config, files), gpus=settings.ray_gpus)
        self._weights: tuple[int, Any] | None = None
        self._heard: dict[tuple[Completion, ...], str | None] = {}
        self._told: Counter[str] = Counter()
        self._dispatcher: Dispatcher[Task, Brought[Any]] = Dispatcher(
            self.crew, patience=settings.ray_patience, retries=settings.ray_retries
        )
        self._begun: Callable[[], Collected] | None = None

    def collect(
        self, first: int, count: int, starts: Sequence[Moment | None] = (), *, plainly: bool = False
    ) -> Collected:
        """Search the instances number `first` to `first + count` of the run's sequence; see `Collector.collect`.

        Raises:
            WorkerLost: The same instances failed too often, or no worker is left.
        """
        return self._begin(first, count, starts, plainly)()

    def begin(
        self, first: int, count: int, starts: Sequence[Moment | None] = (), *, plainly: bool = False
    ) -> Callable[[], Collected]:
        """Begin to search by the weights as they are now, and return what waits for it; see `collect`.

        The learner may go on meanwhile: what workers bring is then compared with an engine that was compared before.
        """
        self._begun = cache(self._begin(first, count, starts, plainly, self._words()))
        return self._begun

    def examine(self, held_out: HeldOut, seed: int) -> Examined:
        """Play this process's share of held-out instances by the weights as they are now; see `play.examine`.

        A search that was begun is waited for first.

        Raises:
            WorkerLost: The same instances failed too often, or no worker is left.
        """
        if self._begun is not None:
            self._begun()
        version, weights = self._handed_over()
        own = self.learner.processes.share(len(held_out.tasks))
        jobs = []
        for part in self._parts(len(own)):
            here = slice(own.start + part.start, own.start + part.stop)
            jobs.append(Exam(tuple(held_out.tasks[here]), tuple(held_out.starts[here]), seed))
        tasks = [Task(job, job.tasks, version, weights) for job in jobs]
        brought = self._dispatcher.deliver(tasks, partial(self._refuse, None))
        return reduce(add, (one.found for one in brought), Examined((), ()))

    def _words(self) -> tuple[Completion, ...]:
        """Return how an engine that samples by the weights as they are now continues the fixed prompts."""
        if self.config.model.engine == "transformers":
            return tuple(continued(self.engine, self.learner.model.config))
        # Another engine draws in its own way: a worker is asked, and compared with the learner while it has them.
        task = Task(Exam((), (), 0), (), *self._handed_over())
        return self._dispatcher.deliver([task], partial(self._refuse, None))[0].said

    def _parts(self, count: int) -> list[range]:
        """Return the numbers of instances that each worker gets, as far as there are any."""
        return [part for number in range(self.crew.size) if (part := Processes(number, self.crew.size).share(count))]

    def _begin(
        self,
        first: int,
        count: int,
        starts: Sequence[Moment | None],
        plainly: bool,
        words: tuple[Completion, ...] | None = None,
    ) -> Callable[[], Collected]:
        started = perf_counter()
        version, weights = self._handed_over()
        places = tuple(starts) or (None,) * count
        tasks = []
        for part in self._parts(count):
            seeds = [task_seed(self.config.run.seed, first + number) for number in part]
            job = Job(first + part.start, places[part.start : part.stop], plainly)
            tasks.append(Task(job, seeds, version, weights))
        finish = self._dispatcher.begin(tasks, partial(self._refuse, words))
        handed_out = perf_counter() - started

        def wait() -> Collected:
            began = perf_counter()
            brought = finish()
            found = side_by_side([one.found for one in brought])
            taken = handed_out + perf_counter() - began
            # Where something else was done meanwhile, less may be waited for than the workers took.
            beside = max(0.0, taken - max(one.seconds for one in brought))
            return replace(found, seconds=found.seconds | {"workers": beside})

        return wait

    def signs(self) -> dict[str, dict[str, int]]:
        """Return how many workers failed since it was last asked, and how; nothing where none did."""
        faults = self._dispatcher.faults - self._told
        self._told = Counter(self._dispatcher.faults)
        return {"worker_faults": dict(faults)} if faults else {}

    def close(self) -> None:
        """End the workers."""
        self._dispatcher.close()

    def _handed_over(self) -> tuple[int, Any]:
        """Return version and place of the weights as they are now."""
        version = self.engine.weight_version
        if self._weights is None or self._weights[0] != version:
            self._weights = version, self.crew.put(weights_of(self.learner.model))
            self._heard.clear()
        return self._weights

    def _refuse(self, words: tuple[Completion, ...] | None, task: Task, brought: Brought[Any]) -> str | None:
        """Return why something that was brought may not be learned from, None where it may."""
        groups = brought.found.groups
        found = {brought.weight_version}.union(*(one.weight_versions for group in groups for one in group.trajectories))
        if others := sorted(found - {task.version}):
            return f"it was sampled by weights of version {others[0]}, wanted is version {task.version}"
        if [group.task for group in groups] != list(task.tasks):
            return f"it is of other instances than the {len(task.tasks)} from {task.tasks[0]} on"
        if brought.said not in self._heard:
            self._heard[brought.said] = self._why_apart(brought.said, words)
        return self._heard[brought.said]

    def _why_apart(self, said: Sequence[Completion], words: Sequence[Completion] | None) -> str | None:
        """Return why an engine that continued the fixed prompts so does not sample for the learner; None if it does.

        Args:
            said: How it continued them.
            words: How an engine that is right did by the same weights; None where the learner still has them.
        """
        tolerance, learner = self.config.run.parity_tolerance, self.learner
        if tolerance == 0:
            return None
        if words is None:
            found = compared(said, learner.model, temperature=learner.temperature, autocast=learner.autocast)
        elif [one.token_ids for one in said] != [one.token_ids for one in words]:
            return "its engine continues the fixed prompts with other tokens than one that agreed with the learner"
        else:
            pairs = zip(said, words, strict=True)
            nats = [Parity(*pair) for one, own in pairs for pair in zip(one.logprobs, own.logprobs, strict=True)]
            found = largest(nats)
        return why_apart(found, learner, tolerance)
