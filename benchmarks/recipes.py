"""Measure the recipes ``auto`` and ``expert`` against their controls at equal sampled tokens, on paired seeds.

``python -m benchmarks.recipes`` does the runs that the result file lacks; ``--analyse`` only writes the tables of
docs/search_teaches.md again; ``--collect`` reads the runs that are there.
"""

import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import tyro

from benchmarks.measure import RESULTS, difference_words, table_of, write_between_marks, write_result
from benchmarks.pay.plan import BASES, DEEP, lake, sokoban
from benchmarks.pay.report import interval
from benchmarks.tsr_runs import Row, build_bases, command, measured, train
from tsr_gym.agents.models.settings import SHIPPED
from tsr_gym.agents.runs.log import JsonLines
from tsr_gym.files import write_atomically

NAME = "recipes"
PAGE = RESULTS.parents[1] / "docs" / "search_teaches.md"
ROOMS = sokoban(10, 16).env_set
# Taught rooms of 1 to 5 moves and nothing else. The model from before the single step of poor play is taken: nothing is
# hidden.
NATURAL = (
    "sokoban --seed 21 --env-set solution_length=[1,5] max_actions_per_turn=1 max_turns=20 max_actions=20 --band 0 1 "
    "--steps 1600 --instances 2500 --episodes 4 --poor-steps 1 --validations 128 --keep-skilled"
)
# The same for questions of one hop.
NATURAL_QUESTIONS = (
    "retrieval_qa --seed 31 --env-set hops=[1] entities=1000 questions=3000 max_turns=5 --band 0 1 --poor-steps 1 "
    "--validations 128 --keep-skilled"
)
NATURAL_LAKE = (
    "frozen_lake --seed 41 --env-set size=4 success_rate=0.9 max_actions_per_turn=1 max_turns=20 max_actions=20 "
    "--band 0 1 --poor-steps 1 --validations 128 --keep-skilled"
)
# Worlds of tools, taught 1 to 3 commands or calls. Few steps: a model that is taught longer is sure of itself at 4 and
# more of them, and wrong, and no search by its own samples finds a success.
NATURAL_SHELL = (
    "shell --seed 51 --env-set depth=[1,3] max_turns=4 --steps 300 --band 0 1 --poor-steps 1 --validations 128 "
    "--keep-skilled"
)
NATURAL_DATABASE = (
    "database --seed 51 --env-set domain=shop depth=[1,3] --steps 250 --band 0 1 --poor-steps 1 --validations 128 "
    "--keep-skilled"
)
RECIPES = {
    "U1": NATURAL_SHELL,
    "R1": NATURAL_DATABASE,
    "E1": NATURAL,
    "E2": NATURAL.replace("--seed 21", "--seed 22"),
    "N1": NATURAL_QUESTIONS,
    "K1": NATURAL_LAKE,
    **{base: BASES[base] for base in ("L1", "W1", "D1")},
}
PLANNED = Path(__file__).parent / "pay" / "planned.toml"


class Case(NamedTuple):
    """A world with a base model, and the ways to train there that are compared.

    Attributes:
        title: Name in the tables.
        flags: Of ``tsr train``: world, model, environment, budget.
        ways: Flags of each way to train, by its name; the first one is compared with the others.
        seeds: Of the paired runs.
        forecast: What was expected, where that was written down before the runs.
        controls: The `ways` of plain play that were planned later.
    """

    title: str
    flags: str
    ways: dict[str, str]
    seeds: Sequence[int] = range(8)
    forecast: str = ""
    controls: Sequence[str] = ()


def _case(title: str, world: str, base: str, env_set: str, lr: str, tokens: int, updates: int, held_out: int) -> Case:
    budget = f"--total-tokens {tokens} --update-tokens {tokens // updates} --updates {4 * updates}"
    often = f"--eval-every {updates // 4} --eval-instances {held_out}"
    ways = {name: f"--recipe {name} --lr {lr}" for name in ("auto", "filtering")}
    if base == "S1":
        ways["levin"] = f"--recipe levin --lr {lr}"
    return Case(title, f"{world} --model BASES/{base} --env-set {env_set} {budget} {often}", ways)


def planned() -> dict[str, Case]:
    """Return the cases that were written down before their runs, by name."""
    cases = {}
    for name, cell in _read_plan().items():
        if name == "controls":
            continue
        tokens, updates = cell["tokens"], cell["updates"]
        budget = f"--total-tokens {tokens} --update-tokens {tokens // updates} --updates {4 * updates}"
        flags = f"{cell['flags']} {budget} --eval-every {updates // 2} --eval-instances {cell['held_out']}"
        # The recipe expert has its own rate: it learns by fits alone.
        ways = {
            way: f"--recipe {way}" if way == "expert" else f"--recipe {way} --lr {cell['lr']}" for way in cell["ways"]
        }
        controls = cell.get("controls", {})
        cases[name] = Case(cell["title"], flags, ways | controls, cell["seeds"], cell["forecast"], tuple(controls))
    return cases


def _read_plan() -> dict[str, Any]:
    return tomllib.loads(PLANNED.read_text())


PLAIN = "--recipe expert --search naive --search-when always --trajectories 8 --naive 0 --search-temperature"
TAUGHT = f"sokoban --model BASES/E1/skilled --env-set {ROOMS} --update-tokens 3750 --updates 400 --eval-instances 512"
CASES = {
    "expert": Case(
        "400,000 tokens",
        f"{TAUGHT} --total-tokens 400000 --eval-every 27",
        {
            "expert": "--recipe expert",
            "expert, plain play alone": f"{PLAIN} 1",
            "expert, plain play alone at temperature 2": f"{PLAIN} 2",
            "filtering": "--recipe filtering --lr 1e-3",
        },
    ),
    "parts": Case(
        "130,000 tokens",
        f"{TAUGHT} --total-tokens 130000 --eval-every 0",
        {
            "expert": "--recipe expert",
            "searches at temperature 1": "--recipe expert --search-temperature 1",
            "the same with 240 expansions": "--recipe expert --search-temperature 1 --search levin(expansions=240)",
            "64 passes a fit": "--recipe expert --fit-passes 64",
            "fits to the present weights": "--recipe expert --fit-from current",
        },
        seeds=range(4),
    ),
    "rooms": _case("rooms of 10 to 16 moves, S1", "sokoban", "S1", ROOMS, "1e-3", 60_000, 32, 512),
    "lake": _case("lake of 6x6, L1", "frozen_lake", "L1", lake(6).env_set, "1e-3", 20_000, 16, 512),
    "shop": _case("shop of 500 products, W1", "webshop", "W1", "num_products=500", "3e-4", 20_000, 16, 256),
    "questions": _case("questions of 2 to 4 hops, D1", "retrieval_qa", "D1", DEEP, "1.5e-4", 20_000, 16, 256),
    **planned(),
}


@dataclass(frozen=True, slots=True)
class Args:
    """Measure the recipes auto and expert against their controls."""

    analyse: bool = False
    """Run nothing: write the tables of the page from the result file."""
    collect: bool = False
    """Run nothing: write the result file from the runs that are there."""
    out: Path = Path("runs/recipes")
    """Where base models and runs go; what is finished there is not done again."""
    workers: int = os.cpu_count() or 1
    """Runs side by side."""


def cells(out: Path) -> Iterator[tuple[str, str, int, str, str]]:
    """Yield case, way, seed, folder and flags of every run."""
    for case, (_, flags, ways, seeds, *_) in CASES.items():
        for way, own in ways.items():
            for seed in seeds:
                folder = f"{case}-{way.replace(', ', '-').replace(' ', '-')}-{seed}"
                run = f"train {flags.replace('BASES', str(out / 'bases'))} {own} --seed {seed}"
                yield case, way, seed, folder, run


def collected(out: Path) -> list[Row]:
    """Return a row for every finished run."""
    rows = []
    for (case, way, seed, folder, _), (*_, shown) in zip(cells(out), cells(Path("OUT")), strict=True):
        numbers = measured(out / "cells" / folder)
        if numbers is not None:
            points = [{name: point[name] for name in ("sampled_tokens", "success")} for point in numbers["points"]]
            # The total has the steps of fits, too.
            last = JsonLines(out / "cells" / folder / "metrics.jsonl").read()[-1]
            steps = last["optimizer_steps_total"]
            own = {"case": case, "way": way, "seed": seed, "optimizer_steps": steps, "points": points}
            own["solved_instances"] = last.get("solved_instances")
            rows.append(own | {"command": command(shown)})
    return rows


def analysed(runs: list[Row]) -> list[Row]:
    """Return a row for each case and way: success, and the paired difference of the first way to it."""
    rows = []
    for case, (title, _, ways, *_) in CASES.items():
        of_way = {way: {run["seed"]: run for run in runs if (run["case"], run["way"]) == (case, way)} for way in ways}
        first = next(iter(ways))
        for way, mine in of_way.items():
            if not mine:
                continue
            ends = {seed: 100 * run["points"][-1]["success"] for seed, run in mine.items()}
            row: Row = {"case": case, "title": title, "way": way, "seeds": len(ends), "success": fmean(ends.values())}
            row["before"] = fmean(100 * run["points"][0]["success"] for run in mine.values())
            row["success_sd"] = stdev(ends.values()) if len(ends) > 1 else 0.0
            row["optimizer_steps"] = fmean(run["optimizer_steps"] for run in mine.values())
            solved = [run["solved_instances"] for run in mine.values() if run["solved_instances"] is not None]
            row["solved_instances"] = fmean(solved) if solved else None
            row["sampled_tokens"] = fmean(run["points"][-1]["sampled_tokens"] for run in mine.values())
            shared = sorted(ends.keys() & of_way[first].keys())
            if way != first and shared:
                others = [100 * of_way[first][seed]["points"][-1]["success"] for seed in shared]
                row |= interval([other - ends[seed] for other, seed in zip(others, shared, strict=True)])
            rows.append({name: round(value, 2) if isinstance(value, float) else value for name, value in row.items()})
    return rows


def tables(rows: list[Row]) -> dict[str, str]:
    """Return the tables of the page."""
    head = (
        "setting",
        "way to train",
        "before %",
        "after %",
        "first way minus this",
        "steps",
        "tokens",
        "solved",
        "seeds",
    )

    def line(row: Row) -> list[str]:
        difference = f"**{difference_words(row)}**" if "points" in row else ""
        after = f"{row['success']:.1f} ± {row['success_sd']:.1f}"
        solved = "" if row["solved_instances"] is None else f"{row['solved_instances']:.0f}"
        counts = [f"{row['optimizer_steps']:.0f}", f"{row['sampled_tokens'] / 1000:.0f}k", solved, str(row["seeds"])]
        return [row["title"], row["way"], f"{row['before']:.1f}", after, difference, *counts]

    def table(cases: Sequence[str], *, with_controls: bool = False) -> str:
        shown = [row for row in rows if row["case"] in cases]
        return table_of(
            head, [line(row) for row in shown if with_controls or row["way"] not in CASES[row["case"]].controls]
        )

    parts = {
        "expert": ["expert"],
        "parts": ["parts"],
        "auto": ["rooms", "lake", "shop", "questions"],
        "fresh": [case for case in planned() if case.startswith("fresh")],
        "natural": [case for case in planned() if case.startswith("natural")],
        "tools": [case for case in planned() if case.startswith("tools")],
    }
    controlled = [name for name, case in planned().items() if case.controls and name not in parts["tools"]]
    forecasts = [[case.title, case.forecast] for case in planned().values()]
    forecasts.append(["other ways of plain play", _read_plan()["controls"]["forecast"]])
    return {name: table(cases) for name, cases in parts.items()} | {
        "controls": table(controlled, with_controls=True),
        "tools": table(parts["tools"], with_controls=True),
        "forecasts": table_of(("setting", "forecast"), forecasts),
    }


def main() -> int:
    """Run what is missing, write the result and the page."""
    args = tyro.cli(Args)
    path = RESULTS / f"{NAME}.json"
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    if not args.analyse:
        if not args.collect:
            done = {(run["case"], run["way"], run["seed"]) for run in runs}
            build_bases(args.out, RECIPES, args.workers)
            if not (args.out / "bases" / "S1").exists():
                shutil.copytree(SHIPPED / "S1", args.out / "bases" / "S1")
            wanted = {folder: flags for *cell, folder, flags in cells(args.out) if tuple(cell) not in done}
            train(args.out, wanted, args.workers)
        kept: dict[Any, Row] = {(run["case"], run["way"], run["seed"]): run for run in (*runs, *collected(args.out))}
        runs = list(kept.values())
        write_result(NAME, {"runs": runs, "differences": analysed(runs)})
    write_atomically(PAGE, write_between_marks(PAGE.read_text(), tables(analysed(runs))).encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
