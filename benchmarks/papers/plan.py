"""Plan: what a published table compares, as training runs of ours; pure data, nothing here runs.

A cell is one run. Its name follows from its command line, so tables share the cells that they have in common, and a
cell whose configuration changes is another cell.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from benchmarks.tsr_runs import Row, base_row, build_bases, finished, measured, run_command, train, words
from tsr_gym.errors import ConfigError

Scale = Literal["tiny", "qwen"]
# Numbers of a paper for one method, by what they measure, such as success in per cent.
Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Setting:
    """A world, and how all methods learn in it.

    Attributes:
        world: Short name of the environment.
        name: What the results call it.
        flags: Of ``tsr train``: the world's settings and those of learning.
        updates: Updates of a run.
        eval_instances: Held-out instances.
        models: Models of the paper whose numbers are shown next to ours.
        model: Pretrained model that all runs begin with; empty for an embedded one.
        recipe: Flags of ``tsr base-model`` that build the embedded one.
        guide: Flags of methods that search by a score.
        tokens: Sampled tokens of a run, which its updates share equally; None for as many as its updates take.
        published: What the paper's numbers are filed under; empty for the world.
        evaluations: Number of evaluations during a run, after one before it.
    """

    world: str
    name: str
    flags: str
    updates: int
    eval_instances: int
    models: tuple[str, ...]
    model: str = ""
    recipe: str = ""
    guide: str = ""
    tokens: int | None = None
    published: str = ""
    evaluations: int = 8

    @property
    def base(self) -> str:
        """The model's name; that of an embedded one includes a digest of its recipe."""
        return self.model or f"{self.world}-{_digest(self.recipe)}"


@dataclass(frozen=True)
class Method:
    """A row of a table: a way to train, as flags of ``tsr train``.

    Attributes:
        name: What the results call it, in the paper's words where it is the paper's.
        flags: Added to those of the setting.
        guided: Whether it searches by the setting's guide.
        matches: Method whose sampled tokens it takes as well, update by update; empty for none.
        trains: False for the model as it is, whose numbers are those of the first evaluation of the others.
        scale: The only one at which it is run; None for all.
    """

    name: str
    flags: str = ""
    guided: bool = False
    matches: str = ""
    trains: bool = True
    scale: Scale | None = None


@dataclass(frozen=True)
class Table:
    """A published table or figure.

    Attributes:
        name: On the command line, of its result file and of its mark in the page.
        title: What it compares.
        source: Where the paper's numbers stand.
        settings: By scale.
        methods: Its rows, in the paper's order.
        control: Method that every other is compared with at equal sampled tokens.
        paper: Numbers by what they are filed under, model and method.
        columns: Which of them there are, in order.
        remarks: What differs from the paper, or is not known of it.
        quick: Updates of a quick run.
        asks: Whether models behind an endpoint are asked, and none is trained.
        view: ``rows`` for results, ``times`` for the clock, or the measure that a figure draws.
    """

    name: str
    title: str
    source: str
    settings: Mapping[Scale, tuple[Setting, ...]]
    methods: tuple[Method, ...]
    control: str
    paper: Mapping[str, Mapping[str, Mapping[str, Numbers]]]
    columns: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    quick: int = 8
    asks: bool = False
    view: str = "rows"

    def methods_at(self, scale: Scale) -> tuple[Method, ...]:
        """Return the rows that there are at a scale."""
        return tuple(method for method in self.methods if method.scale in (None, scale))


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
        setting: Where.
        method: How.
        seed: Of everything in it.
        matched: The run whose tokens it takes as well, or None.
    """

    setting: Setting
    method: Method
    seed: int
    matched: "Cell | None" = field(default=None)

    @property
    def name(self) -> str:
        """Folder name, which includes a digest of the configuration."""
        flags = self.flags(Path("OUT"), Path("MODELS"))
        words = f"{self.setting.name} {self.method.name} {self.seed}"
        slug = "".join(letter if letter.isalnum() else "-" for letter in words)
        return f"{slug}-{_digest(flags)}"

    def flags(self, out: Path, models: Path) -> str:
        """Return the flags of ``tsr``, but for the folder.

        Args:
            out: Where cells and base models lie.
            models: Where pretrained models lie.
        """
        setting, method = self.setting, self.method
        model = models / setting.model if setting.model else out / "bases" / setting.base
        often = max(1, setting.updates // setting.evaluations)
        budget = f"--updates {setting.updates}"
        if setting.tokens is not None:
            # As many updates again, for those that end a little short of their share.
            share = setting.tokens // setting.updates
            budget = f"--total-tokens {setting.tokens} --update-tokens {share} --updates {2 * setting.updates}"
        if self.matched is not None:
            budget += f" --match-tokens {out / 'cells' / self.matched.name}"
        parts = (
            f"train {setting.world} --model {model} {setting.flags}",
            method.flags,
            setting.guide if method.guided else "",
            f"{budget} --eval-every {often} --checkpoint-every {often} --save-trees 0",
            f"--eval-instances {setting.eval_instances} --seed {self.seed} --label {method.name.replace(' ', '_')}",
        )
        return " ".join(part for part in parts if part)


def cells(table: Table, scale: Scale, seeds: int) -> Iterator[Cell]:
    """Yield the runs of a table, seed by seed, each after the one whose tokens it matches."""
    for seed in range(seeds):
        for setting in table.settings[scale]:
            done: dict[str, Cell] = {}
            for method in sorted(
                (trained for trained in table.methods_at(scale) if trained.trains),
                key=lambda trained: bool(trained.matches),
            ):
                done[method.name] = Cell(setting, method, seed, done.get(method.matches))
                yield done[method.name]


def hurried(table: Table) -> Table:
    """Return a table's first tiny setting with a few updates and held-out instances, which shows that it runs."""
    first = table.settings["tiny"][0]
    tokens = None if first.tokens is None else first.tokens // first.updates * table.quick
    short = replace(first, updates=table.quick, tokens=tokens, eval_instances=128, evaluations=4)
    return replace(table, settings={**table.settings, "tiny": (short,)})


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()


GPUS = 8
TORCHRUN = ("torchrun", "--nproc-per-node", str(GPUS), "-m", "tsr_gym")


def recipes(cells: Sequence[Cell]) -> dict[str, str]:
    """Return how the embedded base models of some cells are built, by their names."""
    return {cell.setting.base: cell.setting.recipe for cell in cells if cell.setting.recipe}


def commands(cells: Sequence[Cell], scale: Scale, out: Path, models: Path) -> list[str]:
    """Return the shell commands of the cells, base models first."""
    program = TORCHRUN if scale == "qwen" else ("tsr",)
    wanted = [f"base-model {recipe} --out {out / 'bases' / name}" for name, recipe in recipes(cells).items()]
    lines = [["tsr", *words(flags)] for flags in wanted]
    lines += [[*program, *words(cell.flags(out, models)), "--out", str(out / "cells" / cell.name)] for cell in cells]
    return [shlex.join(line) for line in lines]


def run_cells(cells: Sequence[Cell], scale: Scale, out: Path, models: Path, workers: int) -> None:
    """Do the cells that are not finished, those that match another one's tokens after it.

    Raises:
        ConfigError: A pretrained model is not there.
        SystemExit: A run failed.
    """
    if scale == "qwen":
        _run_on_gpus(cells, out, models)
        return
    build_bases(out, recipes(cells), workers)
    for matches in (False, True):
        turn = [cell for cell in cells if (cell.matched is not None) == matches]
        train(out, {cell.name: cell.flags(out, models) for cell in turn}, workers)


def _run_on_gpus(cells: Sequence[Cell], out: Path, models: Path) -> None:
    for name in dict.fromkeys(cell.setting.model for cell in cells):
        if not (models / name / "config.json").exists():
            raise ConfigError(
                f"wanted the pretrained model {name} in {models / name}, found none: download it there, or name its "
                "parent folder with --models; --dry-run only prints the commands"
            )
    for cell in cells:
        folder = out / "cells" / cell.name
        if not finished(folder):
            flags = f"train --resume {folder}" if folder.exists() else f"{cell.flags(out, models)} --out {folder}"
            if status := run_command([*TORCHRUN, *words(flags)]):
                raise SystemExit(f"tsr {flags} ended with status {status}")


def row_of(out: Path, cell: Cell, scale: Scale) -> Row | None:
    """Return the row of a cell from its files, None where it is not finished."""
    numbers = measured(out / "cells" / cell.name)
    if numbers is None:
        return None
    return {
        "cell": cell.name,
        "setting": cell.setting.name,
        "base": cell.setting.base,
        "method": cell.method.name,
        "seed": cell.seed,
        "command": commands([cell], scale, Path("OUT"), Path("MODELS"))[-1],
        **numbers,
    }


def base_rows(out: Path, cells: Sequence[Cell]) -> list[Row]:
    """Return a row for each embedded base model of some cells that was built."""
    rows = [base_row(out, name, recipe) for name, recipe in recipes(cells).items()]
    return [row for row in rows if row is not None]
