"""The goals of a catalogue as arrays: worked out once, kept beside the store, mapped into memory by every process.

A task is an instruction for a product; each combination of the product's options makes one goal of it. Nothing here
depends on a seed but prices and limits drawn like the original's (`drawn_prices`).
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsr_gym import InvalidCatalogue
from tsr_gym.files import cache_home, in_place_of, locked, remove_leftovers
from tsr_gym_envs.webshop.catalogue.importing import LOCK
from tsr_gym_envs.webshop.catalogue.original_random import Dice, draw_order, generator_of
from tsr_gym_envs.webshop.catalogue.prices import draw_price, draw_tier
from tsr_gym_envs.webshop.catalogue.store import SPLIT_NAMES, Catalogue, read_array

GoalKind = Literal["instruction", "annotation"]
Array = NDArray[Any]


class GoalTable(NamedTuple):
    """Which goals there are, in the order of the environment: T tasks, G goals.

    Attributes:
        rows: Product of each task, `[T]`.
        numbers: Number of each task among those of its product, `[T]`.
        weights: Weight of each of a task's goals, `[T]`.
        tiers: Tier of each task's stored limit, `[T]`.
        tasks: Task of each goal, `[G]`.
        combinations: Number of each goal's combination of options, `[G]`.
        cumulative: Sum of the weights before each goal, and of all, `[G + 1]`.
        splits: For each of `SPLIT_NAMES` the goals whose products belong to it, and the sums of their weights.
        dice: Where the original's generator stands after putting the goals in order.
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
    """What each product costs, `[P]`, and the tier of each task's limit, `[T]`."""

    prices: Array
    tiers: Array


def goal_table(catalogue: Catalogue, kind: GoalKind) -> GoalTable:
    """Return the goals of one kind: from generated instructions, or from what people wrote."""
    folder = _kept(catalogue, f"goals-{kind}", lambda: _build(catalogue, kind))
    arrays = {path.stem: read_array(path) for path in folder.glob("*.npy")}
    try:
        splits = {name: (arrays.pop(name), arrays.pop(f"{name}_cumulative")) for name in SPLIT_NAMES}
        dice = (3, tuple(arrays.pop("dice").tolist()), None)
        return GoalTable(**arrays, splits=splits, dice=dice)
    except (KeyError, TypeError) as error:
        raise InvalidCatalogue(f"{folder} is incomplete: {error}; remove it") from error


def drawn_prices(catalogue: Catalogue, table: GoalTable, kind: GoalKind, seed: int) -> DrawnPrices:
    """Return what the original draws where its generator begins at a seed."""
    folder = _kept(catalogue, f"prices-{kind}-{seed}", lambda: _draw(catalogue, table, seed))
    return DrawnPrices(read_array(folder / "prices.npy"), read_array(folder / "tiers.npy"))


def select(table: GoalTable, chosen: list[int], splits: Array) -> GoalTable:
    """Return a table of some of the goals, in the order in which they are named."""
    tasks, combinations = table.tasks[chosen], table.combinations[chosen]
    return table._replace(tasks=tasks, combinations=combinations, **_sums(table.rows, table.weights, tasks, splits))


def _build(catalogue: Catalogue, kind: GoalKind) -> dict[str, Array]:
    found = catalogue.tasks(kind)
    rows, numbers, combinations, tiers, texts = zip(*found, strict=True) if found else ((),) * 5
    counts = np.array(combinations, np.int64)
    weights = _weights(texts, combinations) if kind == "instruction" else np.ones(len(rows))
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
    """Return the fields of a table that follow from its goals."""
    split_of_goal = product_splits[rows][tasks]
    splits = {}
    for number, name in enumerate(SPLIT_NAMES):
        goals = np.flatnonzero(split_of_goal == number).astype(np.int32)
        splits[name] = (goals, cumulate(weights[tasks[goals]]))
    return {"cumulative": cumulate(weights[tasks]), "splits": splits}


def cumulate(weights: Array) -> Array:
    """Return the sum of the weights before each goal, and of all, added one after the other as the original does."""
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
        # Added one by one: `sum` rounds differently from Python 3.12 on.
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
    """Return the folder of arrays that are kept under a name; where there is none, one process builds it."""
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
