"""The sandbox environment: tasks solved by commands in any sandbox that can go back."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from tsr_gym import ConfigError, Limits, SnapshotError, Step, TextEnv
from tsr_gym.codec import encode
from tsr_gym.ranges import check_counts
from tsr_gym.snapshots import EnvState
from tsr_gym_envs.reasons import invalid
from tsr_gym_envs.sandbox.backend import CommandStopped, SnapshotBackend
from tsr_gym_envs.sandbox.branches import Branches, Place, SandboxTask

# Characters of a command.
MAX_COMMAND = 10_000
_CUT = "\n[...]\n"


class SandboxState(NamedTuple):
    """The state of an episode.

    Attributes:
        place: The name of the sandbox's state.
        output: The last command's output, as it is shown.
        status: Its exit status.
        progress: The checker's verdict, 1 if the task is solved.
    """

    place: Place
    output: str = ""
    status: int = 0
    progress: float = 0.0


class SandboxEnv(TextEnv[SandboxState]):
    """Solve tasks by commands in your own sandbox.

    ## Description
    The files are in a sandbox: a folder (`DirectoryBackend`), a container (`DockerBackend`), a sandbox of E2B
    (`E2BBackend`), or anything with the methods of `SnapshotBackend`. A state names the task, the commands so far and a
    digest of the files; the `max_snapshots` last used states are kept in the sandbox. A state that is kept is exact.
    One that is no longer kept, or comes from another process, is made again by its commands; where it has other files
    then, as after ``date > now``, `ReplayDiverged` is raised. `close` frees everything; an environment that is used
    later opens its sandbox again.

    ## Action Space
    Text: a command, run by a new ``bash`` in the folder of work. A text without a command, or with NUL, means nothing.
    So does a command that reaches a limit of the sandbox: the state is that before it. All others are executed, with
    any exit status.

    ## Observation Space
    Text: the task, then the last command, its output and its exit status if it is not 0.

    ## Starting State
    A task, drawn among `tasks`; ``reset(options={"task": number})`` begins the task of that number.

    ## Rewards
    1 for the command that solves the task, else 0.

    ## Episode End
    Terminates when the task is solved; truncates after `max_turns`.

    ## Information
    As every `TextEnv`; also ``task``, ``exit_status`` and ``progress``, the checker's verdict from 0 to 1.

    ## Arguments
    | keyword | default |
    |---|---|
    | `make_backend` | a function that makes the sandbox; picklable where the environment is pickled |
    | `tasks` | one or more `SandboxTask` |
    | `max_turns` | 20; None for any number |
    | `max_snapshots` | 256 |
    | `max_shown` | 2000: characters of an output that are shown |
    | `render_mode` | None or ``ansi`` |

    ## Version History
    v0: first version.
    """

    draws_noise = False
    instructions = (
        "You work in a shell. Every turn is one command of bash, which starts in the folder of work; its working "
        "folder and variables end with it. Solve the task with as few commands as you can."
    )

    def __init__(
        self,
        make_backend: Callable[[], SnapshotBackend],
        tasks: SandboxTask | Sequence[SandboxTask],
        *,
        max_turns: int | None = 20,
        max_snapshots: int = 256,
        max_shown: int = 2000,
        render_mode: str | None = None,
    ) -> None:
        self.tasks = (tasks,) if isinstance(tasks, SandboxTask) else tuple(tasks)
        if not self.tasks:
            raise ConfigError("wanted one or more tasks, got none")
        check_counts(max_snapshots=max_snapshots, max_shown=max_shown)
        rules = ("sandbox", blake2b(encode(tuple(map(_rules_of, self.tasks))), digest_size=16).digest(), max_shown)
        super().__init__(rules, limits=Limits(max_turns, 1), separator=None, render_mode=render_mode)
        self.max_shown = max_shown
        self.branches = Branches(make_backend, self.tasks, max_snapshots)

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> SandboxState:
        """Return the beginning of a task, which the options can name.

        Raises:
            ConfigError: An option is unknown, there is no such task, or its setup fails.
        """
        if unknown := sorted(set(options) - {"task"}):
            raise ConfigError(f"unknown options of reset {unknown}; known: ['task']")
        task = options["task"] if "task" in options else int(rng.integers(len(self.tasks)))
        if type(task) is not int or not 0 <= task < len(self.tasks):
            raise ConfigError(f"wanted a task from 0 to {len(self.tasks) - 1}, got {task!r}")
        place, progress = self.branches.begin(task)
        return SandboxState(place, progress=progress)

    def transition(self, state: SandboxState, action: str, rng: np.random.Generator) -> Step:
        """Return the state after a command; one that reaches a limit is invalid."""
        if reason := refusal(action):
            return Step(state, 0.0, False, invalid(reason))
        try:
            place, ran, progress = self.branches.run(state.place, action)
        except CommandStopped as error:
            return Step(state, 0.0, False, invalid(f"the command was stopped: {error}"))
        after = SandboxState(place, _short(ran.output, self.max_shown), ran.status, progress)
        is_solved = self.is_success(after)
        return Step(after, float(is_solved and not self.is_success(state)), is_solved, {})

    def observe(self, state: SandboxState) -> str:
        """Return the task, the last command and its output."""
        text = self.tasks[state.place.task].text
        if not state.place.commands:
            return text
        status = f"\n(exit status {state.status})" if state.status else ""
        return f"{text}\n\n$ {state.place.commands[-1]}\n{state.output}".rstrip("\n") + status

    def state_key(self, state: SandboxState) -> bytes:
        """Return the bytes of the task and of the digest: the files, without their times, decide what commands do."""
        return encode((state.place.task, state.place.digest))

    def is_success(self, state: SandboxState) -> bool:
        """Return whether the checker finds the task solved."""
        return state.progress >= 1.0

    def legal_actions(self, state: SandboxState) -> tuple[str, ...]:
        """Return the commands that the task suggests for random play."""
        return self.tasks[state.place.task].commands

    def set_env_state(self, state: EnvState, *, seed: int | None = None) -> None:
        """Continue from what `env_state` returned.

        Raises:
            SnapshotError: The state belongs to something else, or is damaged; this environment is then unchanged.
        """
        inner = state.episode.state if isinstance(state, EnvState) else None
        if not _can_be(inner, len(self.tasks)):
            raise SnapshotError(f"wanted a state of {type(self).__name__} with its commands: damaged")
        super().set_env_state(state, seed=seed)

    def close(self) -> None:
        """Free the sandbox and all of its snapshots, those of clones included."""
        self.branches.close()

    def _facts(self, state: SandboxState) -> dict[str, Any]:
        return {
            "success": self.is_success(state),
            "task": state.place.task,
            "exit_status": state.status,
            "progress": state.progress,
        }


def refusal(command: str) -> str | None:
    r"""Return the reason why a text is not run; None if it is.

    >>> refusal("  "), refusal("a\0b"), refusal("ls")
    ('the turn holds no command', 'a command holds no NUL and no half of a character', None)
    """
    if not command.strip():
        return "the turn holds no command"
    if "\0" in command or any("\ud800" <= letter <= "\udfff" for letter in command):
        return "a command holds no NUL and no half of a character"
    return f"a command has at most {MAX_COMMAND} characters" if len(command) > MAX_COMMAND else None


def _short(text: str, most: int) -> str:
    """Return the beginning and the end of a text."""
    half = most // 2
    return text if len(text) <= most else f"{text[: most - half]}{_CUT}{text[len(text) - half :]}"


def _rules_of(task: SandboxTask) -> tuple[Any, ...]:
    checker = task.checker
    if isinstance(checker, str):
        name = checker
    else:
        named = checker if isinstance(checker, FunctionType) else type(checker)
        name = f"{named.__module__}:{named.__qualname__}"
    return task.text, name, tuple((path, *file) for path, file in task.files), task.setup


def _can_be(state: Any, num_tasks: int) -> bool:
    """Return whether a value has the form of a state, as one that was read from bytes should."""
    if type(state) is not SandboxState or type(state.place) is not Place:
        return False
    task, commands, digest = state.place
    return (
        type(task) is int
        and 0 <= task < num_tasks
        and isinstance(commands, tuple)
        and all(isinstance(command, str) and not refusal(command) for command in commands)
        and isinstance(digest, bytes)
        and isinstance(state.output, str)
        and type(state.status) is int
        and isinstance(state.progress, float)
    )
