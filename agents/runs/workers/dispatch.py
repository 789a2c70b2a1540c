"""Dispatch: work to workers that may die, hang or be wrong, so that every piece of it comes back exactly once.

Knows nothing of Ray, of models or of environments. Invariant: a piece of work waits, is with one worker, or has been
delivered; so none is lost and none comes twice.
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
    """Some workers, by their numbers from 0, however they run. A ticket stands for an answer that is yet to come."""

    @property
    def size(self) -> int:
        """How many workers there are."""

    def start(self, worker: int) -> Any:
        """End a worker if it runs, start it anew, and return the ticket of its being ready."""

    def ask(self, worker: int, job: Any) -> Any:
        """Give a worker a piece of work and return the ticket of its answer."""

    def wait(self, tickets: Sequence[Any], seconds: float) -> list[Any]:
        """Return the tickets whose answers are there, after the first of them or after some seconds."""

    def answer(self, ticket: Any) -> Any:
        """Return the answer of a ticket.

        Raises:
            WorkerLost: The worker is no more, or its answer is lost.
            Exception: The work itself failed, and would fail again.
        """

    def close(self) -> None:
        """End all workers."""


class _Open(NamedTuple):
    """What a worker is doing: a piece of work by its number, or None for what nobody waits for, such as its start."""

    ticket: Any
    number: int | None
    until: float


class _Fault(NamedTuple):
    """Why there is no answer to deliver: ``lost``, ``hung`` or ``refused``, and in words."""

    kind: str
    words: str


class Dispatcher(Generic[JobT, AnswerT]):
    """Give work to the workers of a crew, and do again what was lost.

    A worker that dies, hangs or brings what is refused is started again, and its work goes to whoever is free first.

    Args:
        crew: The workers; they are started now and get ready while something else is done.
        patience: Seconds after which a worker is taken for hung.
        retries: How often a piece of work is done again, and how often a worker is started again that has not delivered
            anything since.
        clock: Seconds as they pass.

    Attributes:
        faults: How many workers were ``lost``, ``hung`` or ``refused`` so far.
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
        """Return the answers to some pieces of work, in their order; see `begin`."""
        return self.begin(jobs, refuse)()

    def begin(self, jobs: Sequence[JobT], refuse: Callable[[JobT, AnswerT], str | None]) -> Callable[[], list[AnswerT]]:
        """Hand out some pieces of work, and return what waits for their answers and returns them in their order.

        Work that was begun before, and that nobody waited for, is forgotten.

        Args:
            jobs: The work.
            refuse: Says what is wrong with an answer, None where nothing is.

        Raises:
            WorkerLost: When it is waited for: the same work failed too often, or no worker is left.
            Exception: When it is waited for: the work itself failed, and would fail again.
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
        # What was begun long ago is waited for from now on: its answers may lie there.
        until = self._clock() + self.patience
        self._open = {worker: one._replace(until=until) for worker, one in self._open.items()}
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
                        raise WorkerLost(f"the same work failed {failures[number]} times, at last so: {self._last}")
                    waiting.appendleft(number)
        finally:
            # Where an error ends this early, nobody waits any more for what others are still doing.
            self._forget()
        return [delivered[number] for number in range(len(jobs))]

    def _hand_out(self, jobs: Sequence[JobT], waiting: deque[int]) -> None:
        while waiting and self._idle:
            number, worker = waiting.popleft(), self._idle.popleft()
            self._begin(worker, self.crew.ask(worker, jobs[number]), number)

    def _forget(self) -> None:
        self._open = {worker: one._replace(number=None) for worker, one in self._open.items()}

    def close(self) -> None:
        """End all workers."""
        self.crew.close()

    def _begin(self, worker: int, ticket: Any, number: int | None = None) -> None:
        self._open[worker] = _Open(ticket, number, self._clock() + self.patience)

    def _settled(self) -> Iterator[tuple[int, int, Any]]:
        """Wait for something to happen, and yield worker, number of the work, and answer or fault."""
        if not self._open:
            raise WorkerLost(f"no worker is left: each failed {self.retries + 1} times, at last so: {self._last}")
        until = min(one.until for one in self._open.values())
        done = self.crew.wait([one.ticket for one in self._open.values()], max(0.0, until - self._clock()))
        for worker, one in list(self._open.items()):
            if one.ticket in done:
                del self._open[worker]
                answer = self._answer(worker, one)
            elif self._clock() >= one.until:
                del self._open[worker]
                answer = _Fault("hung", f"a worker did not answer within {self.patience:g} seconds")
            else:
                continue
            if one.number is not None:
                yield worker, one.number, answer
            elif isinstance(answer, _Fault):
                self._renew(worker, answer)
            else:
                self._idle.append(worker)

    def _answer(self, worker: int, one: _Open) -> Any:
        """Return the answer that has come, or what became of it."""
        try:
            return self.crew.answer(one.ticket)
        except WorkerLost as error:
            return _Fault("lost", str(error))
        except Exception:
            if one.number is None:
                return None
            self._idle.append(worker)
            raise

    def _renew(self, worker: int, fault: _Fault) -> None:
        """Start a worker again, unless that has been in vain too often."""
        self.faults[fault.kind] += 1
        self._failures[worker] += 1
        self._last = fault.words
        if self._failures[worker] <= self.retries:
            self._begin(worker, self.crew.start(worker))
