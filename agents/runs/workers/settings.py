"""Where a run searches and evaluates. Its results do not depend on that, so `TrainConfig` has none of it."""

from dataclasses import dataclass

from tsr_gym.agents.processes import Processes
from tsr_gym.errors import ConfigError
from tsr_gym.sections import check_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Where searches and evaluations are done, and how patiently it is waited for them."""

    ray: str = "off"
    """Search and evaluate in workers of Ray: off (in this process), local (a Ray of this command's own, on this
    machine), auto (the cluster that this machine belongs to), or HOST:PORT of a cluster. Needs the extra ray."""
    ray_workers: int = 2
    """How many workers, each with an engine and environments of its own; all processes of torchrun together."""
    ray_gpus: float = 0.0
    """GPUs that a worker takes; 0 for engines on CPUs."""
    ray_patience: float = 600.0
    """Seconds after which a worker that has not answered is taken for hung: it is ended, and its work done again."""
    ray_retries: int = 3
    """How often the same work is done again, and how often in a row a worker is started again, before the run stops."""

    def __post_init__(self) -> None:
        check_numbers(self, "ray_workers", least=1)
        check_numbers(self, "ray_gpus", "ray_retries", least=0)
        check_numbers(self, "ray_patience", above=0)
        if self.ray not in ("off", "local", "auto") and ":" not in self.ray:
            raise ConfigError(f"wanted ray of off, local, auto or HOST:PORT, got {self.ray!r}")

    @property
    def wanted(self) -> bool:
        """Whether searches are done elsewhere."""
        return self.ray != "off"

    def share(self, processes: Processes) -> int:
        """Return how many workers one of some processes has.

        Raises:
            ConfigError: There are not enough for all, or each process would start a Ray of its own.
        """
        if processes.size > 1 and self.ray == "local":
            raise ConfigError(
                f"each of {processes.size} processes would start a Ray of its own: begin with `ray start --head`, and "
                "write --ray auto"
            )
        if (own := len(processes.share(self.ray_workers))) == 0:
            raise ConfigError(f"wanted ray_workers >= {processes.size}, one a process, got {self.ray_workers}")
        return own


OFF = WorkerConfig()
