"""The shell environment: tasks over files in memory, solved by commands of bash."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from tsr_gym import ConfigError, Limits, Step, TextEnv, Tool
from tsr_gym.codec import encode
from tsr_gym.optional import require
from tsr_gym.state_env import new_tuple
from tsr_gym.teaching import Teaching
from tsr_gym.text_env import Guide
from tsr_gym_envs.reasons import invalid
from tsr_gym_envs.settings import actions_within
from tsr_gym_envs.shell.closed import LIBRARY
from tsr_gym_envs.shell.files import FILE, HOME, is_kind
from tsr_gym_envs.shell.session import Refused, Session, run
from tsr_gym_envs.shell.settings import ShellSettings, ShellState, make_settings, stated_progress
from tsr_gym_envs.shell.tasks import TaskKey, best_plan, draw_number, is_solved, make_task
from tsr_gym_envs.shell.teaching import shell_teaching, spaced

INSTRUCTIONS = (
    "You work in a shell, in the folder /home/user. Every turn is one command of bash, such as 'ls -R', 'cat notes', "
    "'grep -c ERROR a/b.log > out.txt' or 'chmod 640 run.sh'. Fulfil the task with as few commands as you can and "
    "change no other file: what is overwritten or removed cannot be brought back."
)
BASH = Tool(
    "bash",
    "Run a command line of bash, or several lines, in the session's working folder.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
# Files that `legal_actions` reads.
_FEW_FILES = 6
# Follows a file that nobody else may read, in a compact observation.
PRIVATE = "600"


class ShellEnv(TextEnv[ShellState]):
    """Change files by commands of bash until a checker finds the task fulfilled.

    ## Description
    A shell in this process, over files in memory: the interpreter just-bash (bash with about 75 commands, grep, sed,
    awk, find, sort, join and jq among them), closed towards the machine. Tasks are generated from a seed, and a hidden
    checker decides from the files alone. What is overwritten or removed is lost, and every task asks that all other
    files stay as they are, so a wrong command cannot always be undone. Needs the extra ``shell``.

    ## Action Space
    Text: one command line, or several lines. Commands follow each other in one session: the working folder, variables,
    functions and options of the shell stay. A command that fails changes what it changes in a shell. A command that
    reaches a limit means nothing and changes nothing, as does a text without the name of a command or with a mistake
    of syntax, whose error is shown.

    ## Observation Space
    Text, by `observation_mode`: ``full`` (the task, the working folder, and the last command with its output),
    ``output`` (the task at the beginning, then the output alone), ``compact`` (the task and the names of the files in a
    few words, for very small models).

    ## Starting State
    The files of a task, drawn among those of `split` and `depth`. ``reset(options={"task": number})`` begins the task
    of that number.

    ## Rewards
    1 for the command that fulfils the task, else 0.

    ## Episode End
    Terminates after the command that fulfils the task; truncates after `max_turns`.

    ## Information
    As every `TextEnv`; also ``task`` (its number), ``depth`` (the commands of a plan from its beginning),
    ``exit_status``, ``folder``, and ``progress``: the share of the conditions in the task's words that are met.

    ## Arguments
    | keyword | default |
    |---|---|
    | `depth` | (1, 3): commands of the oracle's plan, from 1 to 8: a number, or the least and the greatest |
    | `style` | ``sentences``; ``words``: tasks and commands of a few words over a small vocabulary |
    | `split` | ``all``; ``train``, ``valid`` or ``test``: no task of one is a task of another with other names |
    | `observation_mode` | ``full`` |
    | `max_turns` | 20; None for any number |
    | `max_shown` | 2000: characters of an output that are shown |
    | `max_steps` | 500000: loops and calls of the interpreter that one command may take |
    | `max_commands` | 1000: commands that one turn may run, those in loops included |
    | `max_output` | 100000: characters of an output, and of any text that a command makes |
    | `max_bytes` | 1000000: bytes of all files, and of all variables |
    | `preset` | ``default``; ``paper``, for which the commands ask, is the same |
    | `render_mode` | None or ``ansi`` |

    ## Version History
    v0: first version.
    """

    draws_noise = False
    guide = Guide("tsr_gym.wrappers:ShellScore")
    tools = (BASH,)
    model_forms = frozenset({"observation_mode"})

    def __init__(self, settings: ShellSettings, *, render_mode: str | None = None) -> None:
        require(LIBRARY, "shell")
        super().__init__(
            (settings, version("just-bash")),
            limits=Limits(settings.max_turns),
            separator=None,
            render_mode=render_mode,
        )
        self.settings = settings
        self.instructions = INSTRUCTIONS

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> ShellState:
        """Return the beginning of a task of the split, or of that which the options name.

        Raises:
            ConfigError: An option is unknown, or is no number of a task.
        """
        if unknown := sorted(set(options) - {"task"}):
            raise ConfigError(f"unknown options of reset {unknown}; known: ['task']")
        key = TaskKey(0, self.settings.depths[0], self.settings.depths[-1], self.settings.style)
        number = options["task"] if "task" in options else draw_number(rng, key, self.settings.split)
        if type(number) is not int or number < 0:
            raise ConfigError(f"wanted a task as a whole number >= 0, got {number!r:.80}")
        key = key._replace(number=number)
        return ShellState(key, Session(make_task(key).files))

    def transition(self, state: ShellState, action: str, rng: np.random.Generator) -> Step:
        """Return the session after a command."""
        try:
            result = run(state.session, action, self.settings.limits, state.task.number)
        except Refused as error:
            return new_tuple(Step, (state, 0.0, False, invalid(str(error))))
        after = new_tuple(ShellState, (state.task, result.session, action, result.output, result.status))
        if not result.is_command:
            # An agent that reads the shell's error can correct its command.
            return new_tuple(Step, (after, 0.0, False, invalid(result.output.strip())))
        is_over = self.is_success(after)
        return new_tuple(Step, (after, float(is_over), is_over, {}))

    def observe(self, state: ShellState) -> str:
        """Return the task and the last output, by `observation_mode`."""
        mode = self.settings.observation_mode
        if mode == "compact":
            return self._compact(state)
        output = state.output[: self.settings.max_shown]
        if hidden := len(state.output) - len(output):
            output += f"\n[{hidden} characters more]"
        output += f"\n[exit status {state.status}]" if state.status else ""
        asked = make_task(state.task).text
        if not state.command:
            return f"{asked}\n\nFiles in {HOME}:\n{self._listing(state)}"
        if mode == "output":
            return output.strip("\n") or "[no output]"
        return f"{asked}\n\n{state.session.folder} $ {state.command}\n{output}".rstrip("\n")

    def _compact(self, state: ShellState) -> str:
        """Return the task, the files that are there, private ones marked, and whether the last command failed."""
        files, prefix = state.session.files, f"{HOME}/"
        words = ["task", spaced(make_task(state.task).text), "files"]
        for path, mode in zip(files.paths, files.modes, strict=True):
            if path.startswith(prefix) and is_kind(mode, FILE):
                words += [path.removeprefix(prefix)] if mode & 0o077 else [path.removeprefix(prefix), PRIVATE]
        return " ".join([*words, "failed"] if state.status else words)

    def _listing(self, state: ShellState) -> str:
        """Return the paths of the files in the home folder, a line each."""
        files, prefix = state.session.files, f"{HOME}/"
        rows = zip(files.paths, files.modes, strict=True)
        return "\n".join(
            path.removeprefix(prefix) for path, mode in rows if path.startswith(prefix) and is_kind(mode, FILE)
        )

    def state_key(self, state: ShellState) -> bytes:
        """Return the bytes of the task and the session; what was printed changes no rule."""
        return encode((state.task, state.session))

    def is_success(self, state: ShellState) -> bool:
        """Return whether the checker finds the task fulfilled."""
        return is_solved(state.task, state.session.files)

    def legal_actions(self, state: ShellState) -> tuple[str, ...]:
        """Return commands made of the words of the task, right ones and wrong ones, and commands that only look."""
        parts = make_task(state.task).parts
        tried = [command for part in parts for command in (*part.plan, *part.guesses)]
        if self.settings.style == "words":
            names = self._listing(state).split()
            return tuple(dict.fromkeys([*tried, *(f"rm {name}" for name in names), "ls"]))
        looks = [f"cat {path}" for path in self._listing(state).split("\n")[:_FEW_FILES]]
        return tuple(dict.fromkeys([*tried, "ls -R", *looks, f"cd {HOME}"]))

    def tool_action(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the command that a call of the tool ``bash`` holds."""
        return str(arguments["command"])

    def optimal_turn(self, state: ShellState, turns_left: int | None, actions_left: int | None) -> str | None:
        """Return the first command of a plan that was tried out from the state; None where none is known."""
        plan = best_plan(state.task, state.session)
        return plan[0] if plan else None

    def best_value(self, state: ShellState, turns_left: int | None, actions_left: int | None) -> float | None:
        """Return 1 where a known plan fits into the limits, or the task is fulfilled; else None."""
        if self.is_success(state):
            return 1.0
        left, plan = actions_within(turns_left, actions_left, 1), best_plan(state.task, state.session)
        return 1.0 if plan is not None and (left is None or len(plan) <= left) else None

    def form(self, state: ShellState) -> bytes | None:
        """Return bytes that tasks share if they differ in names alone."""
        return make_task(state.task).form

    def teaching(self) -> Teaching | None:
        """Return the teaching of the tasks of a few words, by the oracle, which knows what is shown."""
        return shell_teaching()

    def _facts(self, state: ShellState) -> dict[str, Any]:
        return {
            "success": self.is_success(state),
            "task": state.task.number,
            "depth": len(make_task(state.task).plan),
            "exit_status": state.status,
            "folder": state.session.folder,
            "progress": stated_progress(state),
        }


def make(*, preset: str = "default", render_mode: str | None = None, **settings: Any) -> ShellEnv:
    """Make the environment behind ``gym.make("tsr/Shell-v0", ...)``; `ShellEnv` documents the keywords.

    Raises:
        ConfigError: A setting is unknown or impossible.
        MissingExtra: just-bash is not installed.
    """
    return ShellEnv(make_settings(preset, settings), render_mode=render_mode)
