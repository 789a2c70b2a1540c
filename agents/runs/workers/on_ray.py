"""RayCrew: workers as actors of Ray, on this machine or on many; the one place that knows Ray.

Actors are not restarted by Ray: one that is gone is made anew by whoever gives it work, together with its weights.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tsr_gym.agents.runs.workers.settings import WorkerConfig
from tsr_gym.errors import ConfigError, EngineFailed, MissingExtra, WorkerLost
from tsr_gym.optional import require


@contextmanager
def connected(settings: WorkerConfig) -> Iterator[None]:
    """Be connected with Ray, where that is wanted, for as long as a run lasts.

    Raises:
        MissingExtra: Ray is not installed.
        ConfigError: There is no such cluster.
    """
    if not settings.wanted:
        yield
        return
    require("ray", "ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # By default Ray's workers give way to everything else on a machine; the work of a run is done in them.
    os.environ.setdefault("RAY_worker_niceness", "0")
    import ray

    here: dict[str, Any] = {}
    if settings.ray == "local":
        # Workers mostly wait for one another on a small machine; more of them than processors are allowed.
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
    """Actors that do what a worker does.

    Args:
        size: How many.
        make: Makes a worker, in the actor.
        args: What it is made with; all actors read one copy.
        gpus: That each of them takes.
    """

    def __init__(self, size: int, make: Callable[..., Any], args: Sequence[Any], *, gpus: float = 0.0) -> None:
        import ray

        self.size = size
        self._make = make
        self._args = [ray.put(one) for one in args]
        options = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self._kind = ray.remote(**options)(_Actor)
        self._actors: dict[int, Any] = {}

    def put(self, thing: Any) -> Any:
        """Put something where all actors can read it, and return its place there."""
        import ray

        # In a list, because Ray reads places for an actor that are arguments themselves, whether it needs them or not.
        return [ray.put(thing)]

    def start(self, worker: int) -> Any:
        """Make an actor anew; see `Crew.start`."""
        self._end(worker)
        self._actors[worker] = self._kind.remote(self._make, *self._args)
        return self._actors[worker].ready.remote()

    def ask(self, worker: int, job: Any) -> Any:
        """Give an actor work; see `Crew.ask`."""
        return self._actors[worker].work.remote(job)

    def wait(self, tickets: Sequence[Any], seconds: float) -> list[Any]:
        """Return the answers that are there; see `Crew.wait`."""
        import ray

        done, _ = ray.wait(list(tickets), num_returns=1, timeout=seconds, fetch_local=False)
        return list(done)

    def answer(self, ticket: Any) -> Any:
        """Return an answer; see `Crew.answer`."""
        import ray

        try:
            return ray.get(ticket)
        except ray.exceptions.RayTaskError as error:
            # A worker whose engine broke off is of no more use than one that is gone.
            if isinstance(error.cause, (ray.exceptions.RayError, EngineFailed)):
                raise WorkerLost(_in_short(error.cause)) from error
            raise error.cause from error
        except ray.exceptions.RayError as error:
            raise WorkerLost(_in_short(error)) from error

    def where(self, worker: int) -> tuple[int, str]:
        """Return an actor's process and node, by the numbers that the system and Ray give them."""
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
    """A worker in a process of its own."""

    def __init__(self, make: Callable[..., Any], *args: Any) -> None:
        self.impossible: ConfigError | None = None
        try:
            self.worker = make(*args)
        except (ConfigError, MissingExtra) as error:
            # It would be so again; whoever wants work done is told.
            self.impossible = ConfigError(str(error))

    def ready(self) -> None:
        """Answer once the worker is made."""

    def where(self) -> tuple[int, str]:
        """Return its process and its node."""
        import ray

        return os.getpid(), ray.get_runtime_context().get_node_id()

    def work(self, task: Any) -> Any:
        """Do a task, by its weights."""
        import ray

        if self.impossible is not None:
            raise self.impossible
        if self.worker.weight_version != task.version:
            self.worker.take(ray.get(task.weights[0]), task.version)
        return self.worker.work(task.job)


def _in_short(error: Exception) -> str:
    """Return what Ray says of a loss, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'without a word'}"
