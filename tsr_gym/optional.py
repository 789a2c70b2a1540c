"""Import of optional packages; a missing one raises MissingExtra with the exact pip command."""

from importlib import import_module
from importlib.util import find_spec

from tsr_gym.errors import MissingExtra


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
        AttributeError: The module has no such name.
    """
    module, colon, name = path.partition(":")
    if not colon:
        raise ValueError(f"wanted 'package.module:name', got {path!r}")
    return vars(import_module(module))[name]
