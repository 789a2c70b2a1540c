"""Processes: the processes of a run, as one of them sees them, and the small objects that they exchange.

Every process does the same in the same order; each call of a method of `Processes` is a place where all of them meet.
Torch-free where there is only one.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from tsr_gym.errors import ConfigError, TsrGymError, WorkerLost

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

# Longest that a process waits for the others where they meet; a base model may be built meanwhile.
WAIT = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes that train one model; alone, nothing is sent anywhere.

    Attributes:
        rank: Number of this process, from 0.
        size: How many there are.
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes what there is one of."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """Return which of `count` things are this process's: neighbours, about as many in every process."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def deal(self, parts: Sequence[T]) -> list[tuple[T, bool]]:
        """Return this process's parts, and whether each counts; all processes get the same number.

        Where parts are missing, the first one is dealt again and does not count, because models that are spread over
        processes have to be read by all of them at once.
        """
        own = [(part, True) for part in parts[self.rank :: self.size]]
        rounds = -(-len(parts) // self.size)
        return own + [(parts[0], False)] * (rounds - len(own))

    def each(self, work: Callable[[], T]) -> list[T]:
        """Do something in every process and return all results, in the order of ranks.

        Raises:
            TsrGymError: It failed so in this process or, if not here, in another one.
        """
        if self.size == 1:
            return [work()]
        import torch.distributed as dist

        outcome: tuple[T | None, TsrGymError | None]
        try:
            outcome = work(), None
        except TsrGymError as error:
            outcome = None, error
        everything: list[Any] = [None] * self.size
        dist.all_gather_object(everything, outcome)
        # The error of this process comes first, because its traceback is here.
        failed = [error for _, error in (outcome, *everything) if error is not None]
        if failed:
            raise failed[0]
        return [result for result, _ in everything]

    def first(self, work: Callable[[], T]) -> T:
        """Do something in the first process and return its result in all.

        Raises:
            TsrGymError: It failed so; in all processes.
        """
        return self.each(work if self.leads else lambda: None)[0]  # type: ignore[return-value]

    def total(self, tensor: "Tensor") -> "Tensor":
        """Return the sum of the processes' tensors, in the place of this one."""
        if self.size > 1:
            import torch.distributed as dist

            dist.all_reduce(tensor)
        return tensor

    def totals(self, sums: dict[str, float]) -> dict[str, float]:
        """Return the sums of numbers that all processes have by the same names."""
        if self.size == 1:
            return sums
        import torch

        added = self.total(torch.tensor(list(sums.values()), dtype=torch.float64))
        return dict(zip(sums, added.tolist(), strict=True))


ALONE = Processes()


@contextmanager
def joined(*, wait: timedelta = WAIT) -> Iterator[Processes]:
    """Meet the processes that torchrun started, for as long as a run lasts; without torchrun there is only this one.

    Args:
        wait: Longest that a process waits for another one before it takes it for lost. On CPUs, and on GPUs wherever
            objects are exchanged, a process that dies is noticed at once where the others next wait for it.

    Raises:
        WorkerLost: Another process has ended or does not answer.
        ConfigError: There are more processes than GPUs.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    import torch.distributed as dist

    processes = Processes(int(os.environ["RANK"]), size)
    try:
        _take_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group(backend(), timeout=wait)
        yield processes
        dist.destroy_process_group()
    except RuntimeError as error:
        if not _is_about_others(error):
            raise
        reason = str(error).strip().partition("\n")[0]
        raise WorkerLost(
            f"process {processes.rank} of {processes.size}: another process of this run has ended, or has not "
            f"answered for {wait.total_seconds() / 60:g} minutes ({reason}): see its output and continue from the last "
            "checkpoint with tsr train --resume FOLDER, with as many processes as you like"
        ) from error


def backend() -> str:
    """Return the backend of torch.distributed for tensors of every device."""
    import torch

    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def _take_device(number: int) -> None:
    """Make a GPU this process's own, where there are GPUs."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if 0 < count <= number:
        raise ConfigError(
            f"wanted a GPU for each process, this machine has {count} and this is process {number} on it: start as "
            "many processes as GPUs, or hide the GPUs by CUDA_VISIBLE_DEVICES="
        )
    if count:
        torch.cuda.set_device(number)


def _is_about_others(error: RuntimeError) -> bool:
    """Return whether an error means that another process cannot be reached; gloo has no class for that."""
    import torch.distributed as dist

    return isinstance(error, dist.DistError) or "gloo" in str(error) or "Connection closed by peer" in str(error)
