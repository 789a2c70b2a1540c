"""Dispatch: with any faults of workers every job is answered once and in its place, or there is an error."""

import random
from collections import deque

import pytest

from tsr_gym.agents.runs.workers.dispatch import Dispatcher
from tsr_gym.errors import PromptTooLong, WorkerLost


class ScriptedCrew:
    """Workers that square numbers, with faults by a script.

    Args:
        size: Number of workers.
        script: Outcome of each call of `ask`, in order: ``"dies"``, ``"hangs"``, ``"lies"``, ``"cannot"`` or
            ``"ok"``, which is also the outcome after the end of the script.
        gone: Workers that do not start.
    """

    def __init__(self, size, script=(), gone=()):
        self.size = size
        self.script = deque(script)
        self.gone = gone
        self.now = 0.0
        self.asked = []
        self.started = []

    def start(self, worker):
        self.started.append(worker)
        return ("start", worker, len(self.started))

    def ask(self, worker, job):
        self.asked.append((worker, job))
        return (self.script.popleft() if self.script else "ok", worker, job, len(self.asked))

    def wait(self, tickets, seconds):
        there = [ticket for ticket in tickets if ticket[0] != "hangs"]
        self.now += 1.0 if there else seconds
        # One at a time, and not in the order of the jobs.
        return there[-1:]

    def answer(self, ticket):
        match ticket:
            case ("start", worker, _) if worker in self.gone:
                raise WorkerLost("it does not start")
            case ("start", _, _):
                return None
            case ("dies", *_):
                raise WorkerLost("it died")
            case ("cannot", *_):
                raise PromptTooLong("the work itself is impossible")
            case ("lies", _, job, _):
                return -(job**2)
            case (_, _, job, _):
                return job**2

    def close(self):
        self.size = 0


def negative(job, answer):
    return "it is negative" if answer < 0 else None


def dispatcher(crew, *, patience=100, retries=2):
    return Dispatcher(crew, patience=patience, retries=retries, clock=lambda: crew.now)


def test_answers_come_in_the_order_of_the_jobs():
    for size in (1, 2, 5):
        assert dispatcher(ScriptedCrew(size)).deliver(range(7), negative) == [0, 1, 4, 9, 16, 25, 36]
    assert dispatcher(ScriptedCrew(1, gone=[0])).deliver([], negative) == []


@pytest.mark.parametrize(("event", "fault"), [("dies", "lost"), ("hangs", "hung"), ("lies", "refused")])
def test_work_that_was_lost_is_done_again_and_its_worker_started_again(event, fault):
    crew = ScriptedCrew(2, ["ok", event])
    given = dispatcher(crew)
    assert given.deliver([3, 4, 5], negative) == [9, 16, 25]
    assert given.faults == {fault: 1}
    assert sorted(job for _, job in crew.asked) == [3, 4, 4, 5]
    failed = crew.asked[1][0]
    assert sorted(crew.started) == sorted([0, 1, failed])


@pytest.mark.parametrize("seed", range(30))
def test_under_any_mixture_of_faults_everything_comes_exactly_once(seed):
    draw = random.Random(seed)
    script = draw.choices(["ok", "dies", "hangs", "lies"], k=12)
    crew = ScriptedCrew(draw.randint(1, 4), script)
    given = dispatcher(crew, retries=12)
    jobs = list(range(draw.randint(1, 9)))
    for _ in range(3):
        assert given.deliver(jobs, negative) == [job**2 for job in jobs]
    # Every fault cost one more job, and no job was repeated without a fault.
    assert len(crew.asked) == 3 * len(jobs) + sum(given.faults.values())


def test_failing_work_and_workers_that_never_start_end_the_run_with_the_reason():
    crew = ScriptedCrew(2, ["dies"] * 100)
    with pytest.raises(WorkerLost, match=r"failed 3 times.*it died"):
        dispatcher(crew).deliver([3], negative)
    assert len(crew.asked) == 3
    crew = ScriptedCrew(3, gone=[0, 2])
    assert dispatcher(crew).deliver(range(9), negative) == [job**2 for job in range(9)]
    assert {worker for worker, _ in crew.asked} == {1}
    with pytest.raises(WorkerLost, match=r"no worker is left.*it does not start"):
        dispatcher(ScriptedCrew(2, gone=[0, 1])).deliver([3], negative)


def test_work_that_is_impossible_is_not_tried_again():
    crew = ScriptedCrew(1, ["cannot"])
    given = dispatcher(crew)
    with pytest.raises(PromptTooLong, match="impossible"):
        given.deliver([3, 4], negative)
    assert [job for _, job in crew.asked] == [3]
    assert given.deliver([5], negative) == [25]


def test_answers_to_an_earlier_call_are_never_delivered():
    given = dispatcher(ScriptedCrew(2, ["ok", "cannot"]))
    with pytest.raises(PromptTooLong):
        given.deliver([3, 4], negative)
    assert given.deliver([7, 8], negative) == [49, 64]
    assert given.faults == {}


def test_jobs_are_handed_out_at_once_and_answers_may_wait_for_long():
    crew = ScriptedCrew(1)
    given = dispatcher(crew, patience=10)
    assert given.deliver([1], negative) == [1]
    wait = given.begin([3, 4], negative)
    assert [job for _, job in crew.asked] == [1, 3]
    # The learner takes longer than a worker may.
    crew.now += 1000.0
    assert (wait(), given.faults) == ([9, 16], {})


def test_jobs_that_are_waited_for_too_late_are_abandoned_and_faults_before_repeated():
    crew = ScriptedCrew(2)
    given = dispatcher(crew)
    given.begin([3, 4], negative)
    assert given.deliver([7, 8, 9], negative) == [49, 64, 81]
    assert given.faults == {}
    crew = ScriptedCrew(2, ["ok", "ok", "dies", "hangs"])
    given = dispatcher(crew)
    assert given.deliver([1, 2], negative) == [1, 4]
    assert given.begin([3, 4], negative)() == [9, 16]
    assert given.faults == {"lost": 1, "hung": 1}
