"""RemoteCollector: searches and evaluations in workers, with the same groups and trees as in one process."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial, reduce
from operator import add
from time import perf_counter
from typing import Any, NamedTuple

from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.collect import Collected, choose_search, side_by_side, task_seed
from tsr_gym.agents.episodes.play import Examined, HeldOut
from tsr_gym.agents.episodes.start_states import StartState
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.policies.engine import Completion, Engine, find_engine
from tsr_gym.agents.processes import Processes
from tsr_gym.agents.runs.parity import Parity, compare, continue_prompts, largest, parity_error
from tsr_gym.agents.runs.workers.dispatch import Dispatcher
from tsr_gym.agents.runs.workers.on_ray import RayCrew, WorkerConfig
from tsr_gym.agents.runs.workers.worker import Exam, Files, Job, RolloutWorker, WorkerResult, weights_of
from tsr_gym.errors import ConfigError


class Task(NamedTuple):
    """A job with the weights to sample from, so that a worker that was started again has them, too.

    Attributes:
        job: The job.
        tasks: Seeds of its instances.
        version: Version of the weights.
        weights: Their reference in the object store.
    """

    job: Job | Exam
    tasks: Sequence[int]
    version: int
    weights: Any


class RemoteCollector:
    """Search and play task instances in workers, with the interface of `Collector`.

    Every round and every evaluation is split into as many jobs as there are workers, and put together in the order of
    the instances. A result is refused unless it is of the requested instances, was sampled from the current weights,
    and comes from an engine that agrees with the learner.

    Args:
        config: Settings of the run.
        files: Files of the model's folder, see `files_of`.
        settings: Settings of the workers.
        engine: The run's engine, which has the version of the current weights.
        learner: Learner with the weights. It may be spread over processes, each of which has its own workers.
        make: Makes a worker.

    Raises:
        ConfigError: Workers cannot have an engine of this type.
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
        if not find_engine(config.model.engine).in_workers:
            raise ConfigError(
                f"each worker of Ray has its own engine: wanted transformers or vllm, got {config.model.engine}"
            )
        self.search = choose_search(config.search)
        self.config = config
        self.engine = engine
        self.learner = learner
        self.crew = RayCrew(settings.share(learner.processes), make, (config, files), gpus=settings.ray_gpus)
        self._weights: tuple[int, Any] | None = None
        # Why results with these continuations of the fixed prompts are refused, None if they are not; for one version.
        self._verdicts: dict[tuple[Completion, ...], str | None] = {}
        self._reported: Counter[str] = Counter()
        self._dispatcher: Dispatcher[Task, WorkerResult[Any]] = Dispatcher(
            self.crew, patience=settings.ray_patience, retries=settings.ray_retries
        )
        self._begun: Callable[[], Collected] | None = None

    def collect(
        self, first: int, count: int, starts: Sequence[StartState | None] = (), *, chance: float = 1.0
    ) -> Collected:
        """Search `count` instances of the run's sequence from number `first` on; see `Collector.collect`.

        Raises:
            WorkerLost: The same instances failed too often, or no worker is left.
        """
        return self._begin(first, count, starts, chance)()

    def begin(
        self, first: int, count: int, starts: Sequence[StartState | None] = (), *, chance: float = 1.0
    ) -> Callable[[], Collected]:
        """Begin to search from the current weights, and return a function that waits for the result; see `collect`.

        The learner may change its weights meanwhile. When results arrive, it cannot check the workers' engines any
        more; these are compared with continuations that are sampled, and checked, now.
        """
        self._begun = cache(self._begin(first, count, starts, chance, self._expected_continuations()))
        return self._begun

    def examine(self, held_out: HeldOut, seed: int) -> Examined:
        """Play this process's share of the distinct held-out instances; see `HeldOut.spread`.

        A search that was begun is finished first, because the dispatcher abandons the jobs of an earlier call.

        Raises:
            WorkerLost: The same instances failed too often, or no worker is left.
        """
        if self._begun is not None:
            self._begun()
        version, weights = self._handed_over()
        places = held_out.distinct
        own = self.learner.processes.share(len(places))
        jobs = []
        for part in self._parts(len(own)):
            here = places[own.start + part.start : own.start + part.stop]
            tasks = tuple(held_out.tasks[place] for place in here)
            jobs.append(Exam(tasks, tuple(held_out.starts[place] for place in here), seed))
        work = [Task(job, job.tasks, version, weights) for job in jobs]
        results = self._dispatcher.deliver(work, partial(self._refuse, None))
        return reduce(add, (worker_result.result for worker_result in results), Examined((), ()))

    def _expected_continuations(self) -> tuple[Completion, ...]:
        """Return the continuations of the fixed prompts that an engine samples from the current weights."""
        if find_engine(self.config.model.engine).host is None:
            return tuple(continue_prompts(self.engine, self.learner.model.config))
        # Other engines draw random numbers in their own way, so a worker has to answer. Its answer is compared with the
        # learner, which still has the weights.
        task = Task(Exam((), (), 0), (), *self._handed_over())
        return self._dispatcher.deliver([task], partial(self._refuse, None))[0].continuations

    def _parts(self, count: int) -> list[range]:
        """Return the instances of each worker by their numbers; workers without instances are left out."""
        return [part for number in range(self.crew.size) if (part := Processes(number, self.crew.size).share(count))]

    def _begin(
        self,
        first: int,
        count: int,
        starts: Sequence[StartState | None],
        chance: float,
        expected: tuple[Completion, ...] | None = None,
    ) -> Callable[[], Collected]:
        started = perf_counter()
        version, weights = self._handed_over()
        places = tuple(starts) or (None,) * count
        tasks = []
        for part in self._parts(count):
            seeds = [task_seed(self.config.run.seed, first + number) for number in part]
            job = Job(first + part.start, places[part.start : part.stop], chance)
            tasks.append(Task(job, seeds, version, weights))
        finish = self._dispatcher.begin(tasks, partial(self._refuse, expected))
        handed_out = perf_counter() - started

        def wait() -> Collected:
            began = perf_counter()
            results = finish()
            collected = side_by_side([worker_result.result for worker_result in results])
            taken = handed_out + perf_counter() - began
            # The time that workers cost in addition to their work. With overlap the wait may be shorter than the work.
            overhead = max(0.0, taken - max(worker_result.seconds for worker_result in results))
            return replace(collected, seconds=collected.seconds | {"workers": overhead})

        return wait

    def metrics(self) -> dict[str, dict[str, int]]:
        """Return ``worker_faults`` since the last call: number of workers by fault; empty if there were none."""
        faults = self._dispatcher.faults - self._reported
        self._reported = Counter(self._dispatcher.faults)
        return {"worker_faults": dict(faults)} if faults else {}

    def close(self) -> None:
        """End the workers."""
        self._dispatcher.close()

    def _handed_over(self) -> tuple[int, Any]:
        """Put the current weights into the object store if they are new; return their version and reference."""
        # Ray's store keeps one copy for all workers. Rounds of one update share it.
        version = self.engine.weight_version
        if self._weights is None or self._weights[0] != version:
            self._weights = version, self.crew.put(weights_of(self.learner.model))
            self._verdicts.clear()
        return self._weights

    def _refuse(
        self, expected: tuple[Completion, ...] | None, task: Task, worker_result: WorkerResult[Any]
    ) -> str | None:
        """Return why a result may not be learned from, None if it may be."""
        groups = worker_result.result.groups
        versions = {worker_result.weight_version}
        versions = versions.union(*(path.weight_versions for group in groups for path in group.trajectories))
        if others := sorted(versions - {task.version}):
            return f"it was sampled by weights of version {others[0]}, wanted is version {task.version}"
        if [group.task for group in groups] != list(task.tasks):
            return f"it is of other instances than the {len(task.tasks)} from {task.tasks[0]} on"
        continuations = worker_result.continuations
        if continuations not in self._verdicts:
            self._verdicts[continuations] = self._check_engine(continuations, expected)
        return self._verdicts[continuations]

    def _check_engine(self, continuations: Sequence[Completion], expected: Sequence[Completion] | None) -> str | None:
        """Return why an engine does not sample from the learner's weights, None if it does.

        It is compared with an engine that was checked with the same weights, or with the learner if it still has them.
        """
        tolerance, learner = self.config.run.parity_tolerance, self.learner
        if tolerance == 0:
            return None
        if expected is None:
            parity = compare(continuations, learner.model, temperature=learner.temperature, autocast=learner.autocast)
        elif [completion.token_ids for completion in continuations] != [other.token_ids for other in expected]:
            return "its engine continues the fixed prompts with other tokens than one that agreed with the learner"
        else:
            parity = largest(
                Parity(*pair)
                for completion, other in zip(continuations, expected, strict=True)
                for pair in zip(completion.logprobs, other.logprobs, strict=True)
            )
        return parity_error(parity, learner, tolerance)
