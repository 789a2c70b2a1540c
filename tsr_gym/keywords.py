"""Keywords written as text, as a command line or a configuration file has them."""

import ast
import json
from collections.abc import Sequence
from typing import Any

from tsr_gym.errors import ConfigError
from tsr_gym.optional import load


def parse_call(text: str, *, home: str) -> tuple[Any, dict[str, Any]]:
    """Return the object that a text such as ``"SokobanScore(potential='oracle')"`` names, and its keywords.

    Args:
        text: A name, or a name with literal keywords; ``package.module:Name`` for one of your own.
        home: Module of bare names.

    Raises:
        ConfigError: The text is not of this form, or there is no such name.

    >>> parse_call("derive_seed(x=1)", home="tsr_gym.seeds")[1]
    {'x': 1}
    """
    path, bracket, rest = text.partition("(")
    try:
        call = ast.parse(f"f({rest}" if bracket else "f()", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError("wanted keywords only")
        keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        return load(path if ":" in path else f"{home}:{path}"), keywords
    except (SyntaxError, ValueError, ImportError, KeyError) as error:
        raise ConfigError(
            f"wanted Name, Name(key='value') or package.module:Name(...), got {text!r} ({error})"
        ) from error


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Return settings from texts of the form KEY=VALUE, where the value is JSON or, failing that, plain text.

    Raises:
        ConfigError: A text has no equals sign.

    >>> parse_settings(["solution_length=[3, 10]", "obs_type=coord"])
    {'solution_length': [3, 10], 'obs_type': 'coord'}
    """
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"wanted KEY=VALUE, got {pair!r}")
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return settings
