"""Processes share work and results, a failure in one reaches all, and a lost process is reported."""

import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.short_runs import together
from tsr_gym import ConfigError, PromptTooLong, WorkerLost
from tsr_gym.agents.processes import ALONE, Processes, joined


@given(st.integers(1, 7), st.integers(0, 40))
def test_shares_are_neighbours_that_make_up_the_whole(size, count):
    shares = [Processes(rank, size).share(count) for rank in range(size)]
    assert [number for share in shares for number in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(st.integers(1, 7), st.integers(1, 40))
def test_every_part_counts_once_and_all_processes_read_as_many(size, count):
    dealt = [Processes(rank, size).deal(range(100, 100 + count)) for rank in range(size)]
    assert sorted(part for own in dealt for part, counts in own if counts) == list(range(100, 100 + count))
    assert {len(own) for own in dealt} == {-(-count // size)}
    assert all(part == 100 for own in dealt for part, counts in own if not counts)


def test_one_process_works_alone():
    assert ALONE.leads
    assert ALONE.each(lambda: 3) == [3]
    assert ALONE.first(lambda: 4) == 4
    numbers = torch.tensor([1.0, 2.0])
    assert ALONE.total(numbers) is numbers
    assert ALONE.totals({"a": 0.1}) == {"a": 0.1}
    assert not dist.is_initialized()
    with joined() as processes:
        assert processes == ALONE


def fail(error):
    raise error("no more")


def caught(error, work):
    with pytest.raises(error) as failure:
        work()
    return str(failure.value)


def meet(processes):
    return {
        "each": processes.each(lambda: processes.rank + 10),
        "first": processes.first(lambda: processes.rank),
        "total": processes.total(torch.tensor([1.0, float(processes.rank)])).tolist(),
        "totals": processes.totals({"b": 0.5, "a": float(processes.rank)}),
        # Both fail, one fails, the first fails; and they continue together.
        "all fail": caught(PromptTooLong, lambda: processes.each(lambda: fail(PromptTooLong))),
        "one fails": caught(ConfigError, lambda: processes.each(lambda: processes.rank and fail(ConfigError))),
        "first fails": caught(ConfigError, lambda: processes.first(lambda: fail(ConfigError))),
        "still there": processes.each(lambda: "yes"),
    }


def test_processes_share_results_and_failures():
    assert (
        together(2, meet)
        == [
            {
                "each": [10, 11],
                "first": 0,
                "total": [2.0, 1.0],
                "totals": {"b": 1.0, "a": 1.0},
                "all fail": "no more",
                "one fails": "no more",
                "first fails": "no more",
                "still there": ["yes", "yes"],
            }
        ]
        * 2
    )


def lose(_, how, waits):
    """Let the second process be lost, and return the error of the first one and the seconds that it took."""
    message = None
    began = time.monotonic()
    try:
        with joined(wait=timedelta(seconds=waits)) as inner:
            inner.each(lambda: None)
            if inner.rank == 1 and how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if inner.rank == 1:
                time.sleep(waits + 60)
            began = time.monotonic()
            inner.total(torch.ones(3))
    except WorkerLost as error:
        message = str(error)
    return message, time.monotonic() - began


@pytest.mark.parametrize(("how", "waits", "within"), [("killed", 60, 20), ("silent", 2, 30)])
def test_a_process_that_is_lost_ends_the_others_with_a_clear_error(how, waits, within):
    message, seconds = together(2, lose, how, waits, joins=False, until=0)[0]
    assert message is not None
    assert message.startswith("process 0 of 2: another process of this run has ended, or has not answered for")
    assert "continue from the last checkpoint with tsr train --resume FOLDER" in message
    assert seconds < within


def test_a_local_error_is_not_reported_as_a_lost_process(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(dist, "init_process_group", lambda *args, **kwargs: None)
    with pytest.raises(RuntimeError, match="mine"), joined():
        raise RuntimeError("mine")


def test_more_processes_than_gpus_are_refused(monkeypatch):
    for name, value in {"WORLD_SIZE": "3", "RANK": "2", "LOCAL_RANK": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigError, match="wanted a GPU for each process, this machine has 2"), joined():
        pass
