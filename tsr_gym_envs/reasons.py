"""Facts of an invalid action: what transitions return under ``invalid_reason``."""

from collections.abc import Sequence
from typing import Any


def invalid(reason: str) -> dict[str, Any]:
    """Return the facts of an invalid action."""
    return {"action_is_valid": False, "invalid_reason": reason}


def unknown_action(text: str, actions: Sequence[str]) -> dict[str, Any]:
    """Return the facts of a word that is not one of a game's actions.

    >>> unknown_action("Jump", ("Left", "Right", "Up"))["invalid_reason"]
    "'Jump' is no action: write Left, Right or Up"
    """
    return invalid(f"{shown(text)} is no action: write {', '.join(actions[:-1])} or {actions[-1]}")


def shown(text: str) -> str:
    """Return a text in quotation marks, cut off after 80 characters."""
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
