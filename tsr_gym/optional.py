"""Import by name: optional packages, whose absence raises MissingExtra, and modules that a file or a user names.

Code that only looks at files runs inside `importing_only`, so that a file of a stranger imports nothing.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec

from tsr_gym.errors import ConfigError, MissingExtra, shown

OURS = ("tsr_gym", "tsr_gym_envs", "gymnasium")
TRUST = "add --trust with the name of that module if it is yours or you have read it"
# Modules that may be imported, and the advice of the message about all others; None where any module may.
_allowed: ContextVar[tuple[tuple[str, ...], str] | None] = ContextVar("allowed", default=None)


@contextmanager
def importing_only(modules: Sequence[str], advice: str) -> Iterator[None]:
    """Refuse to import modules by name, except ours, Gymnasium's and some of the user's.

    Args:
        modules: Names of modules of the user.
        advice: The end of the message, such as the flag that allows a module.
    """
    token = _allowed.set(((*OURS, *modules), advice))
    try:
        yield
    finally:
        _allowed.reset(token)


def check_import(module: str) -> None:
    """Raise ConfigError where `importing_only` refuses to import a module."""
    if (allowed := _allowed.get()) is None:
        return
    names, advice = allowed
    if not any(module == name or module.startswith(f"{name}.") for name in names):
        raise ConfigError(f"the file names the module {shown(module)}, which is not imported for a file: {advice}")


def require(package: str, extra: str) -> None:
    """Make sure that an optional package is installed, without importing it.

    Args:
        package: Top-level import name, such as ``"torch"``.
        extra: The extra of tsr-gym that brings it, such as ``"agents"``.

    Raises:
        MissingExtra: The package is not installed.
    """
    if find_spec(package) is None:
        raise MissingExtra(package, extra)


def load(path: str) -> object:
    """Return the object that ``"package.module:name"`` names.

    Raises:
        ValueError: `path` has no colon.
        ImportError: The module cannot be imported.
        KeyError: The module has no such name.
        ConfigError: See `importing_only`.
    """
    module, colon, name = path.partition(":")
    if not colon:
        raise ValueError(f"wanted 'package.module:name', got {path!r}")
    check_import(module)
    return vars(import_module(module))[name]


@contextmanager
def importing() -> Iterator[None]:
    """Import large libraries without garbage collection, which takes a fifth of that time.

    Processor seconds of all imports of a training run: 3.85 with garbage collection, 3.08 without.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
