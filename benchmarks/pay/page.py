"""Page: the tables of docs/does_search_pay.md, written from the result file between marks in the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.marked_tables import table_of, words, write_between_marks
from benchmarks.pay.plan import EASIER, FILTERING

Row = Mapping[str, Any]
PLAIN = (FILTERING.name, EASIER.name)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "does_search_pay.md"


def write_tables(page: str, result: Row) -> str:
    """Return a page whose tables are those of a result."""
    tables = {
        "bases": bases(result["bases"]),
        "headline": differences(result, ("headline",)),
        "easier": differences(result, ("easier",)),
        "equal": equal(result, "headline"),
        "unguided": differences(result, ("unguided",)),
        "unguided_equal": equal(result, "unguided"),
        "by_levin": differences(result, ("by levin",)),
        "moments": differences(result, ("moments",)),
        "ablation": differences(result, ("estimate", "ablation")),
        "elsewhere": differences(result, ("hard", "lake", "words")),
        "probes": probes(result["probes"]),
        "law": law(result["law"]),
        "settings": differences(result, ("law",)),
        "commands": commands(result["bases"], result["runs"]),
    }
    return write_between_marks(page, tables)


def differences(result: Row, parts: Sequence[str]) -> str:
    """Return a row per contrast of some parts."""
    rows = [
        (
            f"{row['world']}, {row['setting']}, {row['base']}",
            row["method"] if row["control"] in PLAIN else f"{row['method']}, against {row['control']}",
            f"{row['success']:.1f} ± {row['success_sd']:.1f}",
            f"{row['control_success']:.1f} ± {row['control_success_sd']:.1f}",
            f"**{words(row)}**",
            words(row["at_half"]),
            words(row["at_three_quarters"]),
            str(row["seeds"]),
            f"{row['sampled_tokens'] / 1000:.0f}k, {row['control_sampled_tokens'] / 1000:.0f}k",
            f"{row['prompt_tokens'] / 1e6:.2f}M, {row['control_prompt_tokens'] / 1e6:.2f}M",
            f"{row['optimizer_steps']}, {row['control_optimizer_steps']}",
        )
        for row in result["differences"]
        if row["part"] in parts
    ]
    return table_of(
        (
            *("where", "method", "success %", "control %", "difference", "at half the tokens", "at three quarters"),
            *("pairs", "sampled", "prompt", "steps"),
        ),
        rows,
    )


def equal(result: Row, part: str) -> str:
    """Return a part's differences at equal sampled tokens, equal prompt tokens and equal seconds."""
    return table_of(
        ("where", "method", "at equal sampled tokens", "at equal prompt tokens", "at equal seconds", "pairs"),
        [
            (
                f"{row['world']}, {row['setting']}, {row['base']}",
                row["method"],
                words(row),
                *(words(row[name]) for name in ("at_equal_prompt_tokens", "at_equal_seconds")),
                str(row["seeds"]),
            )
            for row in result["differences"]
            if row["part"] == part and row["control"] == FILTERING.name
        ],
    )


def probes(found: Sequence[Row]) -> str:
    """Return a row per setting and way to play, as `tsr probe` measured it before any training."""
    rows = [
        (
            f"{probe['world']}, {probe['setting']}, {probe['base']}",
            "plain play" if row["search"] == "naive" else f"`{row['search']}`",
            "" if row["search"] == "naive" else f"`{row['score']}`",
            f"{100 * row['success']:.2f}",
            f"{row['episodes']:,}",
            "none" if row["tokens_per_success"] is None else f"{row['tokens_per_success']:,.0f}",
        )
        for probe in sorted(found, key=lambda probe: (probe["world"], probe["setting"], probe["base"]))
        for row in probe["rows"]
    ]
    # Plain play is the same whatever was searched beside it.
    head = ("where", "search", "guide", "success %", "episodes", "sampled tokens per success")
    return table_of(head, list(dict.fromkeys(rows)))


def law(found: Row | None) -> str:
    """Return the sentence of the law, or that there is none yet."""
    if found is None:
        return "Too few settings have been run."
    return (
        f"Over {found['settings']} settings ({', '.join(found['worlds'])}) the rank "
        f"correlation of the two is **{found['rank_correlation']:.2f}**, 95 % interval {found['low']:.2f} to "
        f"{found['high']:.2f} (bootstrap over settings)."
    )


def bases(found: Sequence[Row]) -> str:
    """Return a row per base model: its success before its skill was hidden, and after."""
    return table_of(
        ("base model", "success before hiding, %", "after, %"),
        [(row["base"], f"{100 * row['success_skilled']:.1f}", f"{100 * row['success']:.1f}") for row in found],
    )


def commands(bases: Sequence[Row], runs: Sequence[Row]) -> str:
    """Return the command line of each base model, and of each method in each setting, with the first seed."""
    first: dict[tuple[str, ...], str] = {(row["base"],): f"# {row['base']}\n{row['command']}" for row in bases}
    for run in runs:
        first.setdefault((run["world"], run["setting"], run["method"]), f"# {run['method']}\n{run['command']}")
    return "```text\n" + "\n".join(first.values()) + "\n```"
