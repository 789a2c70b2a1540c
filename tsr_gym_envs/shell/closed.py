"""A second copy of just-bash that reaches nothing of the machine and counts its steps.

Its modules are read again under names of this package, with other builtins: an import function that knows a few pure
modules and replacements with a constant clock, seeded random numbers and bounded regular expressions, and no files,
network, processes or `eval`. Their syntax is instrumented on the way, so that every loop and call counts a step.
The user's own just-bash is untouched.
"""

import ast
import builtins
import calendar
import datetime as real_datetime
import importlib
import inspect
import io
import posixpath
import sys
import time as real_time
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn
from zlib import crc32

from tsr_gym.optional import require
from tsr_gym_envs.shell.meter import Meter
from tsr_gym_envs.shell.regexes import bounded_re

# The constant time of every shell, in seconds: 2024-01-01 00:00:00 UTC.
CLOCK = 1_704_067_200
LIBRARY = "just_bash"
COPY = f"{__package__}.{LIBRARY}"
# Modules of the standard library that only compute, in time that is proportional to their arguments.
PURE = (
    "__future__", "base64", "calendar", "collections", "collections.abc", "csv", "dataclasses", "enum", "fnmatch",
    "hashlib", "heapq", "json", "math", "stat", "string", "struct", "types", "typing", "urllib.parse",
)  # fmt: skip
# Those that are read again and instrumented, because they can take much longer.
COUNTED = ("difflib", "shlex")
# Packages of the library whose beginning imports what this copy must not hold: they stay empty.
EMPTY = (COPY, f"{COPY}.fs", f"{COPY}.network")
# The commands that are left out: the network, databases, and formats whose readers are not bounded.
ABSENT = frozenset({
    "curl", "gzip", "gunzip", "html-to-markdown", "rg", "sqlite3", "tar", "xan", "yq", "zcat",
})  # fmt: skip
_LONG_RESULTS = frozenset({"join", "replace", "ljust", "rjust", "center", "zfill", "expandtabs", "format"})
_CHECKS = {ast.Add: "grow", ast.Mult: "multiply", ast.Pow: "power", ast.LShift: "shift", ast.Mod: "fill"}
_OPERATORS = (ast.Mult, ast.Pow, ast.LShift)


def drive(coroutine: Any) -> Any:
    """Return the result of a coroutine that waits for nothing outside."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise OSError("the command waits for something outside of the shell")


class Instrument(ast.NodeTransformer):
    """Adds calls of the meter to loops, functions and operations with long results."""

    def __init__(self) -> None:
        self.texts: set[str] = set()

    def _call(self, name: str, *args: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(f"__meter_{name}__", ast.Load()), list(args), [])

    def _loop(self, node: Any) -> Any:
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(self._call("tick")))
        return node

    visit_For = visit_AsyncFor = visit_While = visit_FunctionDef = visit_AsyncFunctionDef = _loop

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        """Count the turns of a comprehension in its first condition."""
        self.generic_visit(node)
        node.ifs.insert(0, self._call("tick"))
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Note the library's own texts."""
        if isinstance(node.value, str):
            self.texts.add(node.value)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Check the size of a result before it is made."""
        self.generic_visit(node)
        check = self._check(node.op, node.left, node.right)
        if check is None:
            return node
        # The left side is computed once: a function of two arguments would compute the operation itself.
        return self._call(f"{check}_result", node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """Check the size of a result before it is made."""
        self.generic_visit(node)
        if check := self._check(node.op, None, node.value):
            target = ast.parse(ast.unparse(node.target), mode="eval").body
            node.value = self._call(check, target, node.value)
        return node

    def _check(self, operator: ast.operator, left: ast.expr | None, right: ast.expr) -> str | None:
        constants = [isinstance(side, ast.Constant) for side in (left, right)]
        if all(constants) or (any(constants) and not isinstance(operator, _OPERATORS)):
            return None
        return _CHECKS.get(type(operator))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Check methods with long results."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _LONG_RESULTS:
            owner = node.func
            node.args = [owner.value, ast.Constant(owner.attr), *node.args]
            node.func = ast.Name("__meter_call__", ast.Load())
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        """Check the widths of formats."""
        self.generic_visit(node)
        for part in node.format_spec.values if isinstance(node.format_spec, ast.JoinedStr) else ():
            if isinstance(part, ast.FormattedValue):
                part.value = self._call("width", part.value)
        return node


class _Moment(real_datetime.datetime):
    """A datetime whose present is constant and whose zone is UTC."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        """Return the constant time."""
        return cls.fromtimestamp(CLOCK, tz)

    @classmethod
    def fromtimestamp(cls, timestamp: float, tz: Any = None) -> Any:
        """Return a time, without its zone where none is named."""
        moment = super().fromtimestamp(timestamp, real_datetime.UTC)
        return moment.astimezone(tz) if tz else moment.replace(tzinfo=None)

    def timestamp(self) -> float:
        """Return the seconds of a time; those without a zone are in UTC."""
        parts = (self if self.tzinfo is None else self.astimezone()).timetuple()
        return calendar.timegm(parts) + self.microsecond / 1e6

    def astimezone(self, tz: Any = None) -> Any:
        """Return the time in another zone, by default UTC."""
        moment = self if self.tzinfo else self.replace(tzinfo=real_datetime.UTC)
        return super(_Moment, moment).astimezone(tz or real_datetime.UTC)

    today = utcnow = now


def _clock() -> dict[str, Any]:
    """Return replacements of the modules that know the time."""
    constant = lambda: float(CLOCK)  # noqa: E731
    time = SimpleNamespace(
        **dict.fromkeys(("time", "monotonic", "perf_counter"), constant),
        **dict.fromkeys(("gmtime", "localtime"), lambda seconds=CLOCK: real_time.gmtime(seconds)),
        mktime=calendar.timegm,
        strftime=lambda form, moment=None: real_time.strftime(form, moment or real_time.gmtime(CLOCK)),
        strptime=real_time.strptime,
        struct_time=real_time.struct_time,
        tzset=lambda: None,
    )
    datetime = SimpleNamespace(**{**vars(real_datetime), "datetime": _Moment})
    return {"time": time, "datetime": datetime}


def _asyncio() -> SimpleNamespace:
    """Return a replacement of asyncio for coroutines that wait for nothing."""

    async def sleep(seconds: float) -> None:
        """Return at once."""

    async def wait_for(coroutine: Any, timeout: float | None) -> Any:
        return await coroutine

    loop = SimpleNamespace(is_running=lambda: False, run_until_complete=drive)
    return SimpleNamespace(
        sleep=sleep,
        wait_for=wait_for,
        TimeoutError=TimeoutError,
        get_event_loop=lambda: loop,
        run=drive,
    )


def _refused(*args: object, **named: object) -> NoReturn:
    raise OSError("the shell reaches nothing outside of itself")


class Command:
    """A command whose errors are messages, as those of a program are.

    Args:
        command: The library's command.
        types: Its module of types.
        errors: Its module of errors; those steer the interpreter.
    """

    def __init__(self, command: Any, types: Any, errors: Any) -> None:
        self.name, self._command = str(command.name), command
        self._result, self._steering = types.ExecResult, errors.InterpreterError

    async def execute(self, args: list[str], ctx: Any) -> Any:
        """Return the command's output and status."""
        try:
            return await self._command.execute(args, ctx)
        except (MemoryError, RecursionError, self._steering):
            raise
        except Exception as error:
            return self._result(stderr=f"{self.name}: {error}\n", exit_code=1)


class RecursiveLs:
    """The command ``ls`` with its option ``-R``, which the library reads and does not follow.

    Args:
        command: The library's command.
        meter: Counts every folder as a step.
    """

    def __init__(self, command: Any, meter: Meter) -> None:
        self.name, self._command, self._meter = command.name, command, meter

    async def execute(self, args: list[str], ctx: Any) -> Any:
        """Return the command's output and status."""
        end = args.index("--") if "--" in args else len(args)
        options = [arg for arg in args[:end] if arg.startswith("-") and arg != "-"]
        short = "".join(option for option in options if not option.startswith("--"))
        if "--recursive" not in options and "R" not in short:
            return await self._command.execute(args, ctx)
        paths = [arg for arg in args[:end] if arg not in options] + args[end + 1 :]
        folders: list[str] = []
        for path in paths or ["."]:
            await self._walk(path, ctx, "a" in short.lower() or "--all" in options, folders)
        kept = [option.replace("R", "") for option in options if option != "--recursive"]
        kept = [option for option in kept if option != "-"]
        result = await self._command.execute([*kept, "--", *folders], ctx)
        if len(folders) == 1 and not result.exit_code:
            # A single folder has no heading in the library's output.
            return replace(result, stdout=f"{folders[0]}:\n{result.stdout}")
        return result

    async def _walk(self, path: str, ctx: Any, hidden: bool, folders: list[str]) -> None:
        """Append a path and the folders below it, in the order of bash."""
        self._meter.tick()
        folders.append(path)
        full = ctx.fs.resolve_path(ctx.cwd, path)
        if not (await ctx.fs.exists(full) and (await ctx.fs.stat(full)).is_directory):
            return
        for name in sorted(await ctx.fs.readdir(full)):
            if (hidden or not name.startswith(".")) and (await ctx.fs.lstat(f"{full}/{name}")).is_directory:
                await self._walk(f"{path.rstrip('/')}/{name}", ctx, hidden, folders)


class ClosedLibrary:
    """The copy of just-bash.

    Attributes:
        meter: Counts the steps of the running command.
        commands: The commands by name.
        interpreter: The class of interpreters.
    """

    def __init__(self) -> None:
        require(LIBRARY, "shell")
        self._root = _origin(LIBRARY).parent
        self.meter = meter = Meter()
        meter.begin(1 << 60, 1 << 60, 0, 0)
        self._texts: set[str] = set()
        self._modules: dict[str, ModuleType] = {}
        path = {name: vars(posixpath)[name] for name in ("basename", "dirname", "join", "normpath", "splitext")}
        self._outside: dict[str, Any] = {
            **_clock(),
            "re": bounded_re(meter, self._texts),
            "random": SimpleNamespace(Random=meter.dice, randint=lambda low, high: meter.dice().randint(low, high)),
            "os": SimpleNamespace(path=SimpleNamespace(**path, relpath=_relpath), environ={}),
            "asyncio": _asyncio(),
            "sys": SimpleNamespace(stdin=None),
            "io": SimpleNamespace(StringIO=io.StringIO, BytesIO=io.BytesIO),
            "inspect": SimpleNamespace(signature=inspect.signature),
            **{name: importlib.import_module(name) for name in PURE},
        }
        checks = {name: vars(Meter)[name].__get__(meter) for name in ("tick", "call", "width", *_CHECKS.values())}
        self._builtins = {
            **vars(builtins),
            **dict.fromkeys(("eval", "exec", "compile", "open", "input", "breakpoint"), _refused),
            **{f"__meter_{name}__": check for name, check in checks.items()},
            **{f"__meter_{name}_result__": result for name, result in _results(meter).items()},
            "range": meter.range,
            # Python's own differs between processes.
            "hash": lambda value: crc32(repr(value).encode("utf-8", "surrogatepass")),
            "format": lambda value, form="": format(value, meter.width(form)),
            "pow": lambda left, right, *mod: pow(left, meter.power(left, right), *mod),
            "__import__": self._import,
        }
        self.commands = self._commands()
        self.interpreter = self.load("interpreter.interpreter").Interpreter
        self.interpreter.execute_script = meter.nested(self.interpreter.execute_script)

    def load(self, name: str) -> Any:
        """Return a module of the library by its name, such as ``"parser.parser"``."""
        return self._module(f"{COPY}.{name}")

    def _commands(self) -> dict[str, Any]:
        registry = self.load("commands.registry")
        # All are loaded now, because a module that is read by a command would count as its steps.
        loaders = [loader for loader in registry._command_loaders if loader.name not in ABSENT]
        types, errors = self.load("types"), self.load("interpreter.errors")
        commands = {loader.name: drive(loader.load()) for loader in loaders}
        commands["ls"] = RecursiveLs(commands["ls"], self.meter)
        return {name: Command(command, types, errors) for name, command in commands.items()}

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        """Import for the modules of the library, in place of Python's ``__import__``."""
        if level:
            parts = globals["__package__"].split(".")
            name = ".".join([*parts[: len(parts) - level + 1], *filter(None, [name])])
        if not name.startswith(f"{COPY}.") and name not in EMPTY:
            if name in COUNTED:
                return self._module(name)
            if name not in self._outside:
                raise ImportError(f"the shell has no module {name}")
            return self._outside[name if fromlist else name.partition(".")[0]]
        module = self._module(name)
        for item in fromlist or ():
            if item not in vars(module) and self._file(f"{name}.{item}").exists():
                vars(module)[item] = self._module(f"{name}.{item}")
        return module

    def _file(self, name: str) -> Path:
        if name in COUNTED:
            return _origin(name)
        path = self._root.joinpath(*name.removeprefix(COPY).strip(".").split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def _module(self, name: str) -> ModuleType:
        if name.startswith(f"{COPY}.") and name not in self._modules:
            # A package may read its modules itself.
            self._module(name.rpartition(".")[0])
        if name in self._modules:
            return self._modules[name]
        file = self._file(name)
        module = self._modules[name] = ModuleType(name)
        if name.startswith(COPY):
            # Dataclasses look their module up.
            sys.modules[name] = module
        is_package = file.name == "__init__.py"
        vars(module).update(
            __builtins__=self._builtins,
            __package__=name if is_package else name.rpartition(".")[0],
            __file__=str(file),
        )
        if name in EMPTY:
            return module
        instrument = Instrument()
        tree = ast.fix_missing_locations(instrument.visit(ast.parse(file.read_text(encoding="utf-8"))))
        self._texts |= instrument.texts
        exec(compile(tree, str(file), "exec"), vars(module))
        return module


def _results(meter: Meter) -> dict[str, Any]:
    """Return functions that compute an operation after its check."""
    return {
        "grow": lambda left, right: left + meter.grow(left, right),
        "multiply": lambda left, right: left * meter.multiply(left, right),
        "power": lambda left, right: left ** meter.power(left, right),
        "shift": lambda left, right: left << meter.shift(left, right),
        "fill": lambda left, right: left % meter.fill(left, right),
    }


def _origin(name: str) -> Path:
    """Return the file of an installed module."""
    spec = find_spec(name)
    return Path((spec and spec.origin) or "")


def _relpath(path: str, start: str) -> str:
    """Return a path from a folder, as posixpath does, without the machine's working folder."""
    return posixpath.relpath(posixpath.join("/", path), posixpath.join("/", start))


@cache
def closed_library() -> ClosedLibrary:
    """Return the copy of just-bash of this process, read at the first use.

    Raises:
        MissingExtra: just-bash is not installed.
    """
    return ClosedLibrary()
