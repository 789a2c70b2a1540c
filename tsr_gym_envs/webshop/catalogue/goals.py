"""The goals of a catalogue: a sequence whose texts are written on access, over arrays that processes map from disk.

A task is an instruction for a product; each combination of the product's options makes one goal of it. Order, texts,
limits and weights are the original's. The arrays are computed once and stored next to the catalogue; they depend on no
seed, except prices and limits drawn like the original's (`drawn_prices`).
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from tsr_gym import ConfigError, InvalidCatalogue
from tsr_gym.files import cache_home, in_place_of, locked, remove_leftovers
from tsr_gym_envs.settings import SPLITS
from tsr_gym_envs.webshop.catalogue.opening import LOCK
from tsr_gym_envs.webshop.catalogue.original_random import (
    Dice,
    draw_name,
    draw_order,
    draw_price,
    draw_tier,
    generator_of,
    limit_of,
    limit_text,
)
from tsr_gym_envs.webshop.catalogue.product import Goal, OptionGroup
from tsr_gym_envs.webshop.catalogue.store import SPLIT_NAMES, Catalogue, read_array
from tsr_gym_envs.webshop.repairs import Repairs

GoalKind = Literal["instruction", "annotation"]
Array = NDArray[Any]


class GoalTable(NamedTuple):
    """The goals in the order of the environment: T tasks, G goals.

    Attributes:
        rows: Product of each task, `[T]`.
        numbers: Number of each task among those of its product, `[T]`.
        weights: Weight of each of a task's goals, `[T]`.
        tiers: Tier of each task's stored limit, `[T]`.
        tasks: Task of each goal, `[G]`.
        combinations: Number of each goal's combination of options, `[G]`.
        cumulative: Sum of the weights before each goal, and of all, `[G + 1]`.
        splits: For each of `SPLIT_NAMES` the goals whose products belong to it, and the sums of their weights.
        dice: State of the original's generator after it has shuffled the goals.
    """

    rows: Array
    numbers: Array
    weights: Array
    tiers: Array
    tasks: Array
    combinations: Array
    cumulative: Array
    splits: Mapping[str, tuple[Array, Array]]
    dice: Dice


class DrawnPrices(NamedTuple):
    """The price of each product, `[P]`, and the tier of each task's limit, `[T]`."""

    prices: Array
    tiers: Array


def goal_table(catalogue: Catalogue, source: GoalKind) -> GoalTable:
    """Return the goals of one source: generated instructions, or those that people wrote."""
    folder = _kept(catalogue, f"goals-{source}", lambda: _build(catalogue, source))
    arrays = {path.stem: read_array(path) for path in folder.glob("*.npy")}
    try:
        splits = {name: (arrays.pop(name), arrays.pop(f"{name}_cumulative")) for name in SPLIT_NAMES}
        dice = (3, tuple(arrays.pop("dice").tolist()), None)
        return GoalTable(**arrays, splits=splits, dice=dice)
    except (KeyError, TypeError) as error:
        raise InvalidCatalogue(f"{folder} is incomplete: {error}; remove it") from error


def drawn_prices(catalogue: Catalogue, table: GoalTable, source: GoalKind, seed: int) -> DrawnPrices:
    """Return the prices and limits that the original draws after seeding its generator."""
    folder = _kept(catalogue, f"prices-{source}-{seed}", lambda: _draw(catalogue, table, seed))
    return DrawnPrices(read_array(folder / "prices.npy"), read_array(folder / "tiers.npy"))


def select(table: GoalTable, goals: list[int], splits: Array) -> GoalTable:
    """Return the table of the given goals, in the given order."""
    tasks, combinations = table.tasks[goals], table.combinations[goals]
    return table._replace(tasks=tasks, combinations=combinations, **_sums(table.rows, table.weights, tasks, splits))


def _build(catalogue: Catalogue, source: GoalKind) -> dict[str, Array]:
    records = catalogue.tasks(source)
    rows, numbers, combinations, tiers, texts = zip(*records, strict=True) if records else ((),) * 5
    counts = np.array(combinations, np.int64)
    weights = _weights(texts, combinations) if source == "instruction" else np.ones(len(rows))
    # Goals are numbered task by task and then shuffled in the original's order; `tasks` and `combinations` map a
    # shuffled number back to its task and to the combination within the task.
    order, dice = draw_order(int(counts.sum()))
    first = np.repeat(np.cumsum(counts) - counts, counts)
    tasks = np.repeat(np.arange(len(rows), dtype=np.int32), counts)[order]
    arrays = {
        "rows": np.array(rows, np.int32),
        "numbers": np.array(numbers, np.int32),
        "weights": weights,
        "tiers": np.array(tiers, np.uint8),
        "tasks": tasks,
        "combinations": (np.arange(len(order)) - first).astype(np.int32)[order],
        "dice": np.array(dice[1], np.uint32),
    }
    sums = _sums(arrays["rows"], weights, tasks, catalogue.splits)
    for name, (goals, cumulative) in sums.pop("splits").items():
        arrays |= {name: goals, f"{name}_cumulative": cumulative}
    return arrays | sums


def _sums(rows: Array, weights: Array, tasks: Array, product_splits: Array) -> dict[str, Any]:
    """Return the fields of a table that are computed from its goals."""
    # A split belongs to the product, so that goals of one product never fall on both sides of a split.
    split_of_goal = product_splits[rows][tasks]
    splits = {}
    for number, name in enumerate(SPLIT_NAMES):
        goals = np.flatnonzero(split_of_goal == number).astype(np.int32)
        splits[name] = (goals, cumulate(weights[tasks[goals]]))
    return {"cumulative": cumulate(weights[tasks]), "splits": splits}


def cumulate(weights: Array) -> Array:
    """Return the sums of the weights before each goal and of all, added in the original's order."""
    return np.concatenate([[0.0], np.cumsum(weights)])


def _weights(texts: tuple[str, ...], combinations: tuple[int, ...]) -> Array:
    """Return the original's weights: the mean of one over the number of goals that share an attribute."""
    everything = [json.loads(text) for text in texts]
    shared: dict[str, int] = {}
    for attributes, count in zip(everything, combinations, strict=True):
        for attribute in attributes:
            shared[attribute] = shared.get(attribute, 0) + count
    weights = np.zeros(len(texts))
    for task, (attributes, count) in enumerate(zip(everything, combinations, strict=True)):
        # Added in a loop, because `sum` rounds differently from Python 3.12 on and weights must equal the original's.
        total = 0.0
        for attribute in attributes if count else ():
            total += 1.0 / shared[attribute]
        weights[task] = total / len(attributes)
    return weights


def _draw(catalogue: Catalogue, table: GoalTable, seed: int) -> dict[str, Array]:
    """Draw all prices and then all limits, in the order of the products."""
    generator = generator_of(seed)
    prices = catalogue.price_ends[:, 0].copy()
    for row in np.flatnonzero(~np.isnan(catalogue.price_ends[:, 1])).tolist():
        low, high = catalogue.price_ends[row].tolist()
        prices[row] = draw_price(low, high, generator)
    tiers = [draw_tier(price, generator) for price in prices[table.rows].tolist()]
    return {"prices": prices, "tiers": np.array(tiers, np.uint8)}


def _kept(catalogue: Catalogue, name: str, build: Callable[[], dict[str, Array]]) -> Path:
    """Return the folder of arrays with a name; a missing folder is built by one process."""
    # A store may be read-only, such as one on a shared disk; its arrays then go into the cache.
    home, lock = catalogue.data, catalogue.path
    if not (home / name).is_dir() and not os.access(home, os.W_OK):
        home = lock = cache_home() / "webshop" / f"goals-{catalogue.data.name}-{catalogue.digest}"
    if (home / name).is_dir():
        return home / name
    with locked(lock / LOCK):
        if not (home / name).is_dir():
            remove_leftovers(home / name)
            with in_place_of(home / name) as draft:
                for stem, values in build().items():
                    np.save(draft / f"{stem}.npy", values)
    return home / name


# The original's splits by number, for the repair `product_splits` left out.
_RANGES = {"all": (0, None), "test": (0, 500), "valid": (500, 1500), "train": (1500, None)}


def make_goals(
    catalogue: Catalogue,
    repairs: Repairs,
    *,
    human: bool = False,
    seed: int = 0,
    limit: int | None = None,
    min_options: int = 0,
) -> "Goals":
    """Return the goals of a catalogue; equal arguments share one object.

    Args:
        catalogue: The products and instructions.
        repairs: `stored_prices`, `every_goal_drawn` and `product_splits` count.
        human: The instructions that people wrote, instead of the generated ones.
        seed: Seed of the original's generator, which draws prices; unused with `stored_prices`.
        limit: Number of goals to keep, drawn by weight as the original draws them; None keeps all.
        min_options: Keep the goals with at least this number of wanted options.

    Raises:
        InvalidCatalogue: The catalogue has no such goals, or the original could not load it.
        ConfigError: `limit` is impossible, or no goal wants as many options.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"wanted limit_goals >= 1 or None, got {limit}")
    return _made(catalogue, repairs, human, 0 if repairs.stored_prices else seed, limit, min_options)


@lru_cache(maxsize=16)
def _made(
    catalogue: Catalogue, repairs: Repairs, human: bool, seed: int, limit: int | None, min_options: int
) -> "Goals":
    # The original fails on such a catalogue. Human goals and stored prices do not need the missing entry.
    missing = catalogue.meta.without_entry
    if missing is not None and not human and not repairs.stored_prices:
        raise InvalidCatalogue(
            f"product {missing} is missing in the file of attributes, where the original fails: use repairs that hold "
            "stored_prices, or human goals"
        )
    source: GoalKind = "annotation" if human else "instruction"
    table = goal_table(catalogue, source)
    if len(table.tasks) == 0:
        raise InvalidCatalogue(f"no goals in {catalogue.path}: no product has an {source}")
    if repairs.stored_prices:
        prices, tiers = catalogue.stored_prices, table.tiers
    else:
        prices, tiers = drawn_prices(catalogue, table, source, seed)
    generator = generator_of(table.dice)
    if min_options > 0:
        num_options = np.array([_num_options(catalogue, table, task, human) for task in range(len(table.rows))])
        enough = np.flatnonzero(num_options[table.tasks] >= min_options).tolist()
        if not enough:
            raise ConfigError(
                f"wanted goals of min_options >= {min_options}, the most that any goal wants is {num_options.max()}"
            )
        table = select(table, enough, catalogue.splits)
    if limit is not None and limit < len(table.tasks):
        # A dict keeps the order of the draws and drops repeated ones, as the original does.
        drawn: dict[int, None] = {}
        while len(drawn) < limit:
            drawn[_find(table.cumulative, generator.random(), repairs)] = None
        table = select(table, list(drawn), catalogue.splits)
    # The original resets once in its constructor, which draws a name and a goal.
    draw_name(generator)
    generator.random()
    arguments = (catalogue, repairs, human, seed, limit, min_options)
    return Goals(arguments, table._replace(tiers=tiers), prices, generator.getstate())


def _num_options(catalogue: Catalogue, table: GoalTable, task: int, human: bool) -> int:
    """Return the number of options that a task's goals want: for a generated task, one of each group."""
    product = catalogue.product(int(table.rows[task]))
    options = catalogue.annotations(product.row)[table.numbers[task]].options if human else product.options
    return len(options)


def _find(cumulative: Array, share: float, repairs: Repairs) -> int:
    """Return the goal at a share of the sum of all weights."""
    # The original's bisection returns the goal after the one that the share hits; the repair subtracts one.
    place = int(np.searchsorted(cumulative, share * float(cumulative[-1]), side="right"))
    return min(place - 1 if repairs.every_goal_drawn else place, len(cumulative) - 2)


class Goals(Sequence[dict[str, Any]]):
    """The goals in the order of the environment; items are dicts with the original's field names.

    Args:
        arguments: The arguments of `make_goals`, from which copies and pickles are rebuilt.
        table: The goals.
        prices: The price of each product, `[P]`.
        dice: State of the original's generator after its environment was constructed.

    Attributes:
        dice: The same.
    """

    def __init__(self, arguments: tuple[Any, ...], table: GoalTable, prices: Array, dice: Dice) -> None:
        self._arguments, self._table, self._prices = arguments, table, prices
        self._catalogue: Catalogue = arguments[0]
        self._repairs: Repairs = arguments[1]
        self._human: bool = arguments[2]
        self.dice = dice
        self._goal = lru_cache(maxsize=4096)(self._write_goal)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, self._arguments

    def __len__(self) -> int:
        return len(self._table.tasks)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        goal = self.goal(index)
        # An empty tuple of options does not show whether the goal is human, so the flag decides.
        return goal.as_original(human=self._human)

    def goal(self, index: int) -> Goal:
        """Return a goal by its number; negative numbers count from the end.

        Raises:
            IndexError: The number is out of range.
        """
        return self._goal(self._number(index))

    def row(self, index: int) -> int:
        """Return the product of a goal, without writing the goal's text."""
        return int(self._table.rows[self._table.tasks[self._number(index)]])

    def price(self, row: int) -> float:
        """Return the price of a product in dollars."""
        return float(self._prices[row])

    def split(self, name: str) -> Array:
        """Return the numbers of a split's goals: of ``"all"``, ``"train"``, ``"valid"`` or ``"test"``.

        Splits never share a product. Without the repair `product_splits` they are the original's ranges of numbers.

        Raises:
            ConfigError: The split is unknown.
        """
        if name not in SPLITS:
            raise ConfigError(f"wanted a split of {sorted(SPLITS)}, got {name!r}")
        if self._repairs.product_splits and name != "all":
            return self._table.splits[name][0]
        first, last = _RANGES[name]
        return np.arange(len(self), dtype=np.int32)[first:last]

    def draw(self, share: float, split: str = "all") -> int:
        """Return the goal at a share of the sum of all weights, 0 <= share < 1.

        Args:
            share: A uniform random number.
            split: The goals to draw among.

        Raises:
            ConfigError: The split is unknown or empty.
        """
        goals, cumulative = self._drawable(split)
        if len(cumulative) < 2:
            raise ConfigError(f"the split {split!r} of {self._catalogue.path} holds no goal: {len(self)} goals in all")
        place = _find(cumulative, share, self._repairs)
        return place if goals is None else int(goals[place])

    def _drawable(self, split: str) -> tuple[Array | None, Array]:
        if split == "all":
            return None, self._table.cumulative
        if self._repairs.product_splits and split in self._table.splits:
            return self._table.splits[split]
        goals = self.split(split)
        return goals, cumulate(self._table.weights[self._table.tasks[goals]])

    def _number(self, index: int) -> int:
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"wanted a goal from {-len(self)} to {len(self) - 1}, got {index}")
        return int(number)

    def _write_goal(self, number: int) -> Goal:
        table = self._table
        task = int(table.tasks[number])
        product = self._catalogue.product(table.rows[task])
        tier = int(table.tiers[task])
        options: tuple[Any, ...]
        if self._human:
            annotation = self._catalogue.annotations(product.row)[table.numbers[task]]
            text, attributes, options = annotation.text.strip("."), annotation.attributes, annotation.options
        else:
            instruction = self._catalogue.instruction(product.row)
            assert instruction is not None
            attributes, options = instruction.attributes, combination(product.options, int(table.combinations[number]))
            wishes = ", and ".join(f"{name}: {value}" for name, value in options)
            text = f"{instruction.text} with {wishes}" if wishes else instruction.text
        return Goal(
            row=product.row,
            asin=product.asin,
            category=product.category,
            query=product.query,
            name=product.title,
            product_category=product.product_category,
            instruction_text=text + limit_text(tier),
            attributes=attributes,
            price_upper=limit_of(tier),
            goal_options=options,
            weight=float(table.weights[task]),
        )


def combination(options: tuple[OptionGroup, ...], number: int) -> tuple[tuple[str, str], ...]:
    """Return the combination of options with a number: groups in order of name, the last one changes fastest.

    >>> combination((("size", ("s", "m")), ("color", ("red", "blue", "tan"))), 3)
    (('color', 'blue'), ('size', 'm'))
    """
    pairs = []
    for name, values in sorted(options, reverse=True):
        number, place = divmod(number, len(values))
        pairs.append((name, values[place]))
    return tuple(reversed(pairs))
