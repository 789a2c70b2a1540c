"""RayCrew: workers as actors of Ray, on this machine or on many, and their settings; the one file that imports Ray.

Ray does not restart actors: a restarted actor would have no weights. The dispatcher starts a new one in place of an
actor that died, and gives it the weights with its first job.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tsr_gym.agents.processes import Processes
from tsr_gym.errors import ConfigError, EngineFailed, MissingExtra, WorkerLost
from tsr_gym.optional import require
from tsr_gym.sections import check_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Where a run searches and evaluates. Its results do not depend on that, so `TrainConfig` has none of this."""

    ray: str = "off"
    """Search and evaluate in workers of Ray: off (in this process), local (a new Ray on this machine, which ends with
    the command), auto (the cluster that this machine belongs to), or HOST:PORT of a cluster. Needs the extra ray."""
    ray_workers: int = 2
    """Number of workers, each with its own engine and environments; of all processes of torchrun together."""
    ray_gpus: float = 0.0
    """GPUs of each worker; 0 for engines on CPUs."""
    ray_patience: float = 600.0
    """Seconds without an answer after which a worker counts as hung: it is ended, and its work repeated."""
    ray_retries: int = 3
    """How often the same work is repeated, and how often in a row a worker is started again, before the run stops."""

    def __post_init__(self) -> None:
        check_numbers(self, "ray_workers", least=1)
        check_numbers(self, "ray_gpus", "ray_retries", least=0)
        check_numbers(self, "ray_patience", above=0)
        if self.ray not in ("off", "local", "auto") and ":" not in self.ray:
            raise ConfigError(f"wanted ray of off, local, auto or HOST:PORT, got {self.ray!r}")

    @property
    def wanted(self) -> bool:
        """Whether workers search and evaluate."""
        return self.ray != "off"

    def share(self, processes: Processes) -> int:
        """Return the number of workers of this process.

        Raises:
            ConfigError: There are fewer workers than processes, or each process would start its own Ray.
        """
        if processes.size > 1 and self.ray == "local":
            raise ConfigError(
                f"each of {processes.size} processes would start its own Ray: begin with `ray start --head`, and "
                "write --ray auto"
            )
        if (own := len(processes.share(self.ray_workers))) == 0:
            raise ConfigError(f"wanted ray_workers >= {processes.size}, one a process, got {self.ray_workers}")
        return own


OFF = WorkerConfig()


@contextmanager
def connected(settings: WorkerConfig) -> Iterator[None]:
    """Stay connected to Ray for the duration of the context; do nothing if no workers are wanted.

    Raises:
        MissingExtra: Ray is not installed.
        ConfigError: There is no such cluster.
    """
    if not settings.wanted:
        yield
        return
    require("ray", "ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # By default Ray lowers the priority of its workers, but a run's main work is done in them.
    os.environ.setdefault("RAY_worker_niceness", "0")
    import ray

    here: dict[str, Any] = {}
    if settings.ray == "local":
        # Ray starts at most as many actors as it counts processors. More workers than that are allowed here.
        here = {"num_cpus": max(os.cpu_count() or 1, settings.ray_workers), "include_dashboard": False}
    try:
        ray.init(address=settings.ray, log_to_driver=False, logging_level="ERROR", **here)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"there is no Ray at {settings.ray} ({error}): begin one with `ray start --head`, or write --ray local"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


class RayCrew:
    """A `Crew` of Ray actors.

    Args:
        size: Number of actors.
        make: Makes a worker; called in the actor.
        args: Arguments of `make`; all actors read the same copy.
        gpus: GPUs of each actor.
    """

    def __init__(self, size: int, make: Callable[..., Any], args: Sequence[Any], *, gpus: float = 0.0) -> None:
        import ray

        self.size = size
        self._make = make
        self._args = [ray.put(arg) for arg in args]
        options = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self._actor_class = ray.remote(**options)(_Actor)
        self._actors: dict[int, Any] = {}

    def put(self, value: Any) -> Any:
        """Put a value into the object store, where all actors can read it, and return its reference."""
        import ray

        # In a list, because Ray resolves a reference that is itself an argument. An actor that has the weights already
        # need not read them again.
        return [ray.put(value)]

    def start(self, worker: int) -> Any:
        """Start a new actor; see `Crew.start`."""
        self._end(worker)
        self._actors[worker] = self._actor_class.remote(self._make, *self._args)
        return self._actors[worker].ready.remote()

    def ask(self, worker: int, job: Any) -> Any:
        """Give an actor a job; see `Crew.ask`."""
        return self._actors[worker].work.remote(job)

    def wait(self, tickets: Sequence[Any], seconds: float) -> list[Any]:
        """Return the tickets with answers; see `Crew.wait`."""
        import ray

        done, _ = ray.wait(list(tickets), num_returns=1, timeout=seconds, fetch_local=False)
        return list(done)

    def answer(self, ticket: Any) -> Any:
        """Return an answer; see `Crew.answer`."""
        import ray

        try:
            return ray.get(ticket)
        except ray.exceptions.RayTaskError as error:
            # A worker whose engine failed cannot sample any more, as if it had died.
            if isinstance(error.cause, (ray.exceptions.RayError, EngineFailed)):
                raise WorkerLost(_first_line(error.cause)) from error
            raise error.cause from error
        except ray.exceptions.RayError as error:
            raise WorkerLost(_first_line(error)) from error

    def where(self, worker: int) -> tuple[int, str]:
        """Return the process id and the node id of an actor."""
        import ray

        process, node = ray.get(self._actors[worker].where.remote())
        return process, node

    def close(self) -> None:
        """End all actors."""
        for worker in list(self._actors):
            self._end(worker)

    def _end(self, worker: int) -> None:
        import ray

        if worker in self._actors:
            ray.kill(self._actors.pop(worker), no_restart=True)


class _Actor:
    """The Ray actor: a worker in its own process."""

    def __init__(self, make: Callable[..., Any], *args: Any) -> None:
        self.impossible: ConfigError | None = None
        try:
            self.worker = make(*args)
        except (ConfigError, MissingExtra) as error:
            # A new actor would fail in the same way. Raised here, the error would look like a lost actor; the first job
            # raises it instead, and the dispatcher passes it on.
            self.impossible = ConfigError(str(error))

    def ready(self) -> None:
        """Return when the worker is made."""

    def where(self) -> tuple[int, str]:
        """Return the process id and the node id."""
        import ray

        return os.getpid(), ray.get_runtime_context().get_node_id()

    def work(self, task: Any) -> Any:
        """Do a task with the weights that it names."""
        import ray

        if self.impossible is not None:
            raise self.impossible
        if self.worker.weight_version != task.version:
            self.worker.take(ray.get(task.weights[0]), task.version)
        return self.worker.work(task.job)


def _first_line(error: Exception) -> str:
    """Return the type and the first line of an error of Ray."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
