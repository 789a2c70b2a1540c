"""Processes that work together, as torchrun would start them: forks of a server that has everything imported."""

import os
import pickle
import traceback
from contextlib import nullcontext
from datetime import timedelta

import torch
from torch.distributed import TCPStore

from tests.agents.short_runs import FORKS
from tsr_gym.agents.processes import joined

# Far longer than anything here takes, also on a machine that has much else to do.
WAIT = timedelta(seconds=120)


def together(size, work, *args, joins=True, until=None):
    """Call `work(processes, *args)` in each of some processes and return what they returned, in the order of ranks.

    The first error of any of them, and a process that ends without a word, fails the test; none is left behind.

    Args:
        size: How many processes.
        work: A function of a module.
        args: Its other arguments.
        joins: Whether they have met before it is called; otherwise it gets None, and meets the others itself.
        until: The last rank whose answer is waited for; None for all.
    """
    # Port 0 is one that is free; the store stays here, as torchrun keeps it.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes, running = [], []
    for rank in range(size):
        here, there = FORKS.Pipe(duplex=False)
        args_of_work = (surroundings(rank, size, store.port), joins, there, work, args)
        running.append(FORKS.Process(target=_work, args=args_of_work, daemon=True))
        running[-1].start()
        there.close()
        pipes.append(here)
    try:
        answers = [_answer(rank, pipe) for rank, pipe in enumerate(pipes[: until if until is None else until + 1])]
    finally:
        for process in running:
            process.kill()
            process.join()
    failed = [error for _, error in answers if error is not None]
    assert not failed, "\n".join(failed)
    return [result for result, _ in answers]


def surroundings(rank, size, port):
    """Return the variables by which a process finds the others, as torchrun sets them."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def _answer(rank, pipe):
    try:
        hangs = not pipe.poll(WAIT.total_seconds())
        return (None, f"process {rank} hangs") if hangs else pickle.loads(pipe.recv_bytes())
    except EOFError:
        return None, f"process {rank} ended without a word"


def _work(variables, joins, pipe, work, args):
    os.environ |= variables
    torch.set_num_threads(1)
    try:
        with joined(wait=WAIT) if joins else nullcontext() as processes:
            found = work(processes, *args)
        answer = found, None
    except BaseException:
        answer = None, traceback.format_exc()
    # As bytes, because tensors would be left behind in the memory of a process that ends.
    pipe.send_bytes(pickle.dumps(answer))
