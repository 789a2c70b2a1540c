"""Dispatch: jobs for workers that may die, hang or be wrong, each answered exactly once.

It knows nothing of Ray, models or environments. Invariant: a job is waiting, with one worker, or delivered, so that
none is lost and none is delivered twice.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from tsr_gym.errors import WorkerLost

JobT = TypeVar("JobT")
AnswerT = TypeVar("AnswerT")


class Crew(Protocol):
    """Workers with numbers from 0. A ticket stands for an answer that is not there yet."""

    @property
    def size(self) -> int:
        """Number of workers."""

    def start(self, worker: int) -> Any:
        """End a worker if it runs, start it again, and return a ticket that is answered when it is ready."""

    def ask(self, worker: int, job: Any) -> Any:
        """Give a worker a job and return the ticket of its answer."""

    def wait(self, tickets: Sequence[Any], seconds: float) -> list[Any]:
        """Return the tickets with answers, as soon as there is one, or after some seconds."""

    def answer(self, ticket: Any) -> Any:
        """Return the answer of a ticket.

        Raises:
            WorkerLost: The worker died, or its answer is lost.
            Exception: The job itself failed, and would fail again.
        """

    def close(self) -> None:
        """End all workers."""


class _Open(NamedTuple):
    """What a worker is doing: the number of its job, or None for a start or a job that was abandoned."""

    ticket: Any
    number: int | None
    until: float


class _Fault(NamedTuple):
    """Why there is no answer to deliver: ``lost``, ``hung`` or ``refused``, and a message."""

    name: str
    message: str


class Dispatcher(Generic[JobT, AnswerT]):
    """Give jobs to the workers of a crew, and repeat those that are lost.

    A worker that dies, hangs or gives an answer that is refused is started again. Its job goes to the next worker that
    is free.

    Args:
        crew: The workers; they are started now, and become ready in the background.
        patience: Seconds without an answer after which a worker counts as hung.
        retries: How often a job is repeated, and how often a worker is started again in a row without delivering an
            answer.
        clock: Returns seconds.

    Attributes:
        faults: Number of workers that were ``lost``, ``hung`` or ``refused`` so far.
    """

    def __init__(self, crew: Crew, *, patience: float, retries: int, clock: Callable[[], float] = monotonic) -> None:
        self.crew = crew
        self.patience = patience
        self.retries = retries
        self.faults: Counter[str] = Counter()
        self._clock = clock
        self._open: dict[int, _Open] = {}
        self._idle: deque[int] = deque()
        self._failures: Counter[int] = Counter()
        self._last = ""
        for worker in range(crew.size):
            self._begin(worker, crew.start(worker))

    def deliver(self, jobs: Sequence[JobT], refuse: Callable[[JobT, AnswerT], str | None]) -> list[AnswerT]:
        """Return the answers to some jobs, in their order; see `begin`."""
        return self.begin(jobs, refuse)()

    def begin(self, jobs: Sequence[JobT], refuse: Callable[[JobT, AnswerT], str | None]) -> Callable[[], list[AnswerT]]:
        """Hand out some jobs, and return a function that waits for their answers and returns them in their order.

        Jobs that were begun before and not waited for are abandoned.

        Args:
            jobs: The jobs.
            refuse: Returns why an answer must not be used, None if it may be.

        Raises:
            WorkerLost: From the returned function: a job failed too often, or no worker is left.
            Exception: From the returned function: a job itself failed, and would fail again.
        """
        self._forget()
        waiting = deque(range(len(jobs)))
        self._hand_out(jobs, waiting)
        return partial(self._finish, jobs, refuse, waiting)

    def _finish(
        self, jobs: Sequence[JobT], refuse: Callable[[JobT, AnswerT], str | None], waiting: deque[int]
    ) -> list[AnswerT]:
        delivered: dict[int, AnswerT] = {}
        failures: Counter[int] = Counter()
        # Jobs may have been begun long ago, and their answers may be ready. Patience counts from now on: otherwise a
        # caller that was busy for longer than that would take working workers for hung.
        until = self._clock() + self.patience
        self._open = {worker: task._replace(until=until) for worker, task in self._open.items()}
        try:
            while len(delivered) < len(jobs):
                self._hand_out(jobs, waiting)
                for worker, number, answer in self._settled():
                    why = None if isinstance(answer, _Fault) else refuse(jobs[number], answer)
                    fault = answer if why is None else _Fault("refused", why)
                    if not isinstance(fault, _Fault):
                        delivered[number] = answer
                        self._failures[worker] = 0
                        self._idle.append(worker)
                        continue
                    self._renew(worker, fault)
                    failures[number] += 1
                    if failures[number] > self.retries:
                        raise WorkerLost(f"a job failed {failures[number]} times, the last time with: {self._last}")
                    waiting.appendleft(number)
        finally:
            # After an error other workers may still be at their jobs. The answers would otherwise be taken for those
            # of the next jobs with the same numbers.
            self._forget()
        return [delivered[number] for number in range(len(jobs))]

    def _hand_out(self, jobs: Sequence[JobT], waiting: deque[int]) -> None:
        while waiting and self._idle:
            number, worker = waiting.popleft(), self._idle.popleft()
            self._begin(worker, self.crew.ask(worker, jobs[number]), number)

    def _forget(self) -> None:
        self._open = {worker: task._replace(number=None) for worker, task in self._open.items()}

    def close(self) -> None:
        """End all workers."""
        self.crew.close()

    def _begin(self, worker: int, ticket: Any, number: int | None = None) -> None:
        self._open[worker] = _Open(ticket, number, self._clock() + self.patience)

    def _settled(self) -> Iterator[tuple[int, int, Any]]:
        """Wait for an answer or a timeout, and yield worker, number of the job, and answer or fault.

        Workers that became ready, or finished an abandoned job, go to the idle ones without being yielded.
        """
        if not self._open:
            raise WorkerLost(
                f"no worker is left: each failed {self.retries + 1} times, the last time with: {self._last}"
            )
        until = min(task.until for task in self._open.values())
        done = self.crew.wait([task.ticket for task in self._open.values()], max(0.0, until - self._clock()))
        for worker, task in list(self._open.items()):
            if task.ticket in done:
                del self._open[worker]
                answer = self._answer(worker, task)
            elif self._clock() >= task.until:
                del self._open[worker]
                answer = _Fault("hung", f"a worker did not answer within {self.patience:g} seconds")
            else:
                continue
            if task.number is not None:
                yield worker, task.number, answer
            elif isinstance(answer, _Fault):
                self._renew(worker, answer)
            else:
                self._idle.append(worker)

    def _answer(self, worker: int, task: _Open) -> Any:
        """Return an answer that is there, or the fault of a worker that was lost."""
        try:
            return self.crew.answer(task.ticket)
        except WorkerLost as error:
            return _Fault("lost", str(error))
        except Exception:
            # The error of an abandoned job concerns no caller; the worker itself is fine in both cases.
            if task.number is None:
                return None
            self._idle.append(worker)
            raise

    def _renew(self, worker: int, fault: _Fault) -> None:
        """Start a worker again, unless it has failed too often in a row."""
        self.faults[fault.name] += 1
        self._failures[worker] += 1
        self._last = fault.message
        if self._failures[worker] <= self.retries:
            self._begin(worker, self.crew.start(worker))
