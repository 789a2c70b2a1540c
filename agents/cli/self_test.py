"""Self-test: every world that can be made is made, saved, restored and searched, in a process that may be stopped.

The process is another one, because a library that is built wrongly may end it, and because nothing may take longer
than its time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, Literal

import gymnasium as gym

from tsr_gym.errors import MissingExtra
from tsr_gym.optional import load
from tsr_gym.registration import ENTRY_POINTS
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import restore, snapshot
from tsr_gym.text_env import TextEnv

SECONDS = 10.0
GPU = "gpu"
# They need nothing but the core, and what compiles at its first use should not keep them waiting.
QUICK = ("tsr/FrozenLake-v0", "tsr/Sokoban-v0")
# What a test says of itself: its words where it worked, or what it raised.
Test = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a part of the self-test.

    Attributes:
        what: Id of an environment, or ``"gpu"``.
        state: ``works``, ``missing`` (an extra is not installed), ``failed``, or ``not done`` in the time.
        words: What was found.
    """

    what: str
    state: Literal["works", "missing", "failed", "not done"]
    words: str


def self_test(seconds: float = SECONDS, tests: dict[str, Test] | None = None) -> list[Trial]:
    """Return what came of every test, in their order.

    Args:
        seconds: When to stop; what is not done by then says so.
        tests: By what is tested; None for all environments and the GPU. They are run in a new process.
    """
    chosen = _tests() if tests is None else tests
    end = monotonic() + seconds
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_run, args=(theirs, chosen), daemon=True)
    child.start()
    theirs.close()
    trials: list[Trial] = []
    try:
        while len(trials) < len(chosen) and ours.poll(max(end - monotonic(), 0)):
            trials.append(ours.recv())
    except EOFError:
        child.join()
        trials.append(Trial([*chosen][len(trials)], "failed", f"it ended the process (status {child.exitcode})"))
    finally:
        child.kill()
        child.join()
        ours.close()
    late = f"not done within {seconds:g} s: a first use compiles and builds; ask again"
    return trials + [Trial(what, "not done", late) for what in [*chosen][len(trials) :]]


def _tests() -> dict[str, Test]:
    names = sorted(ENTRY_POINTS, key=lambda name: name not in QUICK)
    return {**{name: partial(try_world, name) for name in names}, GPU: find_gpu}


def _run(pipe: Connection, tests: dict[str, Test]) -> None:
    for what, test in tests.items():
        pipe.send(_trial(what, test))


def _trial(what: str, test: Test) -> Trial:
    try:
        return Trial(what, "works", test())
    except MissingExtra as error:
        return Trial(what, "missing", str(error))
    # Whatever it is that does not work here, that is what is wanted to be known.
    except Exception as error:
        return Trial(what, "failed", f"{type(error).__name__}: {error}")


def try_world(env_id: str) -> str:
    """Return in words that a world was made, restored bit for bit and searched.

    Raises:
        MissingExtra: What it needs is not installed.
        RuntimeError: A restored environment went another way.
    """
    env = gym.make(env_id)
    env.reset(seed=0)
    base = env.unwrapped
    assert isinstance(base, TextEnv)
    before, turn = snapshot(env), base.legal_actions(base.state)[0]
    first = env.step(turn)
    restore(env, Snapshot.from_bytes(before.to_bytes()))
    if env.step(turn) != first:
        raise RuntimeError(f"after a restore, {turn!r} brought something else")
    return f"made, restored and searched: a tree of {_searched(env)} nodes"


def _searched(env: gym.Env[Any, Any]) -> int:
    wrap: Any = load("tsr_gym.wrappers:TreeSearchWrapper")
    answer: Any = load("tsr_gym.wrappers:AnswerFormat")
    beam: Any = load("tsr_gym.agents.strategies:beam")
    player: Any = load("tsr_gym.agents.policies.random_policy:legal_player")
    base: Any = env.unwrapped
    tree_env = wrap(env if base.reads_tags else answer(env))
    tree_env.reset(seed=0)
    return len(tree_env.search(player(base), partial(beam, width=2, branching=4, depth=2)).nodes)


def find_gpu() -> str:
    """Return what torch says of the devices here.

    Raises:
        MissingExtra: torch is not installed.
    """
    if find_spec("torch") is None:
        raise MissingExtra("torch", "agents")
    cuda: Any = load("torch:cuda")
    names = [cuda.get_device_name(number) for number in range(cuda.device_count())] if cuda.is_available() else []
    return ", ".join(names) or "torch finds none; it computes on the processor"
