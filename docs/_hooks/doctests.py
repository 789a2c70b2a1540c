"""Doctests of docstrings as blocks of Python, which Markdown would take for quotes and links."""

import re
from typing import Any

from griffe import Extension, Object

# Prompts, and what they print, up to a blank line.
DOCTEST = re.compile(r"^>>> (?:.|\n(?!\s*\n))*", re.MULTILINE)


class Doctests(Extension):
    """Fence the doctests of everything that is shown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of an object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
