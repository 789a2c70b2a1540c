"""A session of the shell as an immutable value, and what a command does to it.

`run` gives just-bash's interpreter the files and variables of a session and reads them back, so that commands one after
the other behave as in one shell, and every session can be continued at any time.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from threading import RLock
from typing import Any, NamedTuple

from tsr_gym_envs.shell.closed import CLOCK, ClosedLibrary, closed_library, drive
from tsr_gym_envs.shell.files import HOME, Files, FileSystem
from tsr_gym_envs.shell.meter import Exhausted

VARIABLES = {
    "?": "0", "BASH_VERSION": "5.0.0(1)-release", "HOME": HOME, "HOSTNAME": "localhost", "OPTIND": "1",
    "PATH": "/usr/local/bin:/usr/bin:/bin", "PWD": HOME, "SHELL": "/bin/bash", "SHLVL": "1", "USER": "user",
}  # fmt: skip
EXPORTED = tuple((name, "x", None) for name in sorted(set(VARIABLES) - {"?", "HOSTNAME", "OPTIND"}))
# Characters of a command, and the steps that its parser takes: some texts without syntax would keep it for ever.
MAX_COMMAND = 10_000
_PARSING, _PARSING_A_CHARACTER = 5_000, 200
SYNTAX_ERROR, NOT_FOUND = 2, 127
# Frames of Python that a command may use, on top of those of its caller.
_FRAMES = 1500
# Nested calls of functions.
_CALLS = 20
# The interpreter has one meter.
_LOCK = RLock()


class ShellLimits(NamedTuple):
    """The limits of one command.

    Attributes:
        max_steps: Iterations of loops and calls of functions in the interpreter.
        max_commands: Commands of a line, those in loops and functions included.
        max_output: Most characters that it prints, and of any text that it makes.
        max_bytes: Most bytes of all files, and of all variables.
    """

    max_steps: int = 500_000
    max_commands: int = 1_000
    max_output: int = 100_000
    max_bytes: int = 1_000_000


class Session(NamedTuple):
    """The state of a shell between two commands.

    Attributes:
        files: The files.
        folder: The working folder.
        previous: The working folder before it, for ``cd -``.
        names: The names of the variables, in ascending order.
        values: Their values.
        attributes: Variable, its attributes in ascending order (such as "x" for exported) and the name it stands for.
        functions: Functions by name; the syntax as JSON.
        aliases: Aliases by name.
        options: Names of the options of ``set`` that are on.
        folders: The stack of ``pushd``.
        draws: How many random generators were drawn.
    """

    files: Files
    folder: str = HOME
    previous: str = ""
    names: tuple[str, ...] = tuple(VARIABLES)
    values: tuple[str, ...] = tuple(VARIABLES.values())
    attributes: tuple[tuple[str, str, str | None], ...] = EXPORTED
    functions: tuple[tuple[str, str], ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    draws: int = 0


class Outcome(NamedTuple):
    """What a command did.

    Attributes:
        session: The session after it.
        printed: Its standard output.
        errors: Its error output.
        status: Its exit status.
        is_command: Whether the shell knows it: its syntax, and the name of a program in it.
    """

    session: Session
    printed: str
    errors: str
    status: int
    is_command: bool = True

    @property
    def output(self) -> str:
        """All that it printed, errors last; bytes that are no text are replaced."""
        return f"{self.printed}{self.errors}".encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Refused(Exception):
    """A command that has no result: it reached a limit, or is no text of a shell."""


def run(session: Session, command: str, limits: ShellLimits, seed: int = 0) -> Outcome:
    """Return the outcome of a command in a session.

    Args:
        session: The session before it.
        command: One or more lines.
        limits: What it may use.
        seed: The seed of all random numbers of the episode.

    Raises:
        Refused: The command reached a limit, or holds characters that no command has.
        MissingExtra: just-bash is not installed.
    """
    if "\0" in command or not _is_text(command):
        raise Refused("a command holds no NUL and no half of a character")
    if len(command) > MAX_COMMAND:
        raise Refused(f"a command has at most {MAX_COMMAND} characters")
    library = closed_library()
    with _LOCK, _frames(_FRAMES):
        library.meter.begin(limits.max_steps, limits.max_output, seed, session.draws)
        try:
            return _run(library, session, command, limits)
        except Exhausted as error:
            raise Refused(f"the command was stopped: {error}") from None
        except RecursionError:
            raise Refused("the command was stopped: nested too deeply") from None
        except MemoryError:
            raise Refused("the command was stopped: too much memory") from None
        except Exception as error:
            # The interpreter has errors of its author's for commands that bash would refuse, too.
            raise Refused(f"the shell cannot run this ({type(error).__name__}: {error!s:.80})") from None


def _run(library: ClosedLibrary, session: Session, command: str, limits: ShellLimits) -> Outcome:
    types, errors = library.load("types"), library.load("interpreter.errors")
    system = FileSystem(session.files, library.meter, limits.max_bytes)
    interpreter = library.interpreter(
        fs=system,
        commands=library.commands,
        limits=types.ExecutionLimits(
            max_call_depth=_CALLS,
            max_command_count=limits.max_commands,
            max_loop_iterations=limits.max_steps,
            max_awk_iterations=limits.max_steps,
            max_sed_iterations=limits.max_steps,
        ),
        state=_opened(library, session),
    )
    meter = library.meter
    later = max(limits.max_steps - _PARSING - _PARSING_A_CHARACTER * len(command), 0)
    meter.steps -= later
    try:
        tree = library.load("parser").parse(command)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        return Outcome(session, "", f"bash: {error}\n", SYNTAX_ERROR, is_command=False)
    meter.steps += later
    try:
        result = drive(interpreter.execute_script(tree))
    except errors.ExitError as error:
        result = error
        interpreter.state.last_exit_code = error.exit_code
    except errors.ExecutionLimitError as error:
        raise Exhausted(str(error)) from None
    if len(result.stdout) + len(result.stderr) > limits.max_output:
        raise Exhausted(f"an output of more than {limits.max_output} characters")
    after = _closed(library, system.value(), interpreter.state)
    if sum(map(len, after.values)) + sum(len(text) for _, text in after.functions) > limits.max_bytes:
        raise Exhausted(f"variables of more than {limits.max_bytes} characters")
    status = int(result.exit_code)
    if status == NOT_FOUND and after._replace(values=session.values) == session:
        return Outcome(session, result.stdout, result.stderr, status, is_command=False)
    return Outcome(after, result.stdout, result.stderr, status)


def _opened(library: ClosedLibrary, session: Session) -> Any:
    """Return the interpreter's state of a session."""
    types = library.load("interpreter.types")
    variables = types.VariableStore(zip(session.names, session.values, strict=True))
    for name, attributes, target in session.attributes:
        variables._metadata[name] = types.VariableMetadata(set(attributes), target)
    state = types.InterpreterState(
        env=variables,
        cwd=session.folder,
        previous_dir=session.previous,
        functions={name: thawed(library, json.loads(text)) for name, text in session.functions},
        last_exit_code=int(variables.get("?", "0")),
        start_time=float(CLOCK),
        options=types.ShellOptions(**dict.fromkeys(session.options, True)),
        dir_stack=list(session.folders),
    )
    state._aliases = dict(session.aliases)
    return state


def _closed(library: ClosedLibrary, files: Files, state: Any) -> Session:
    """Return the session of the interpreter's state."""
    variables = dict(state.env)
    for name in [name for name in variables if name.startswith("PIPESTATUS_") or name == "__remaining_stdin__"]:
        del variables[name]
    variables["?"] = str(state.last_exit_code)
    if state.random_generator is not None:
        # The generator of an assigned RANDOM continues with the next command from a number of its sequence.
        variables.setdefault("RANDOM", str(state.random_generator.randint(0, 32767)))
    names = tuple(sorted(variables))
    for name in state.readonly_vars - {"BASHOPTS", "EUID", "PPID", "SHELLOPTS", "UID"}:
        state.env.set_attribute(name, "r")
    attributes = (
        (name, "".join(sorted(about.attributes)), about.nameref_target)
        for name, about in sorted(state.env._metadata.items())
    )
    return Session(
        files,
        state.cwd,
        state.previous_dir,
        names,
        tuple(variables[name] for name in names),
        tuple(row for row in attributes if row[1] or row[2]),
        tuple((name, json.dumps(frozen(tree))) for name, tree in sorted(state.functions.items())),
        tuple(sorted(state._aliases.items())),
        tuple(sorted(name for name, is_on in vars(state.options).items() if is_on)),
        tuple(state.dir_stack),
        library.meter.draws,
    )


def frozen(node: Any) -> Any:
    """Return a syntax tree as lists, for JSON."""
    if is_dataclass(node):
        return [type(node).__name__, {item.name: frozen(vars(node)[item.name]) for item in fields(node)}]
    return ["", [frozen(part) for part in node]] if isinstance(node, tuple | list) else node


def thawed(library: ClosedLibrary, data: Any) -> Any:
    """Return the syntax tree of such lists."""
    if not isinstance(data, list):
        return data
    name, parts = data
    if not name:
        return tuple(thawed(library, part) for part in parts)
    cls, values = vars(library.load("ast.types"))[name], {key: thawed(library, part) for key, part in parts.items()}
    init = {item.name for item in fields(cls) if item.init}
    return cls(**{key: value for key, value in values.items() if key in init})


@contextmanager
def _frames(num: int) -> Iterator[None]:
    """Allow a number of further frames, the same under every caller."""
    frame, depth, before = sys._getframe(), 0, sys.getrecursionlimit()
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    sys.setrecursionlimit(depth + num)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _is_text(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
