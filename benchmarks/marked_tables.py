"""Marked tables: Markdown tables that stand in a page between marks and are written from a result file."""

import re
from collections.abc import Mapping, Sequence
from typing import Any


def write_between_marks(page: str, tables: Mapping[str, str]) -> str:
    """Return a page with its tables written anew, each between ``<!-- table: NAME -->`` and ``<!-- end -->``."""

    def table(found: "re.Match[str]") -> str:
        return f"<!-- table: {found[1]} -->\n{tables[found[1]]}\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->\n.*?<!-- end -->", table, page, flags=re.DOTALL)


def table_of(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; of no rows, a sentence that says so."""
    if not rows:
        return "Not run yet."
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def words(row: Mapping[str, Any]) -> str:
    """Return a difference with its interval."""
    if row["low"] is None:
        return f"{row['points']:+.1f}"
    return f"{row['points']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}]"
