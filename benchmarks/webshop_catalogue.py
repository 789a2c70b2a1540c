"""How like the real small set the generated catalogue is: shapes of products and goals, and how search finds them.

The real one (../shared) is left out where it is missing. Both are read through the importer. The shoppers' success on
both, in their order and under both rules, is what webshop_players.py measures; here goals are drawn, for more seeds.

Run: python -m benchmarks.webshop_catalogue
"""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
import numpy as np

import tsr_gym  # noqa: F401 (registers the environments)
from benchmarks.measure import SHARED, run_timed, write_result
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.catalogue.product import Product
from tsr_gym_envs.webshop.catalogue.store import Catalogue
from tsr_gym_envs.webshop.env import WebShopEnv
from tsr_gym_envs.webshop.generator import write_catalogue
from tsr_gym_envs.webshop.oracle import as_query
from tsr_gym_envs.webshop.shoppers import FirstHitShopper, OracleShopper, RuleShopper, play

REAL = SHARED / "data" / "webshop"
NUM_PRODUCTS = 1000
NUM_GOALS = 1000
SEEDS = range(5)
NO_PRICE = "$100.0"
AWKWARD = {'"': '"', "/": " | ", "two blanks": "  ", "< > &": "<>&", "not ASCII": None}


def spread(values: Iterable[float]) -> dict[str, float]:
    """Return the mean and some quantiles."""
    array = np.array(list(values), dtype=float)
    marks = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}
    return {"mean": round(float(array.mean()), 1)} | {
        name: round(float(np.quantile(array, mark)), 1) for name, mark in marks.items()
    }


def counted(values: Iterable[Any]) -> dict[str, int]:
    """Return how often each value occurs, by value."""
    return {str(value): count for value, count in sorted(Counter(values).items())}


def is_awkward(value: str, mark: str | None) -> bool:
    """Return whether an option value has a mark; None stands for letters that are not ASCII."""
    if mark is None:
        return not value.isascii()
    return any(letter in value for letter in mark) if mark == "<>&" else mark in value


def product_shape(products: list[Product]) -> dict[str, Any]:
    """Return statistics of the products."""
    groups = [(name, values) for product in products for name, values in product.options]
    values = [value for _, group in groups for value in group]
    queries = Counter(product.query for product in products)
    return {
        "products": len(products),
        "by category": counted(product.category for product in products),
        "queries": {
            "distinct": len(queries),
            "with one product": list(queries.values()).count(1),
            "most products": max(queries.values()),
        },
        "without": {
            "price": sum(product.price_text == NO_PRICE for product in products),
            "description": sum(not product.description for product in products),
            "path of categories": sum(not product.product_category for product in products),
            "attributes": sum(not product.attributes for product in products),
        },
        "price ranges": sum(len(product.prices) > 1 for product in products),
        "an empty bullet": sum("" in product.bullets for product in products),
        "price": spread(product.prices[0] for product in products if product.price_text != NO_PRICE),
        "title, characters": spread(len(product.title) for product in products),
        "description, characters, where there is one": spread(
            len(product.description) for product in products if product.description
        ),
        "bullets": spread(len(product.bullets) for product in products),
        "bullet, characters": spread(len(bullet) for product in products for bullet in product.bullets),
        "attributes": counted(min(len(product.attributes), 10) for product in products),
        "option groups": counted(len(product.options) for product in products),
        "option names": dict(Counter(name for name, _ in groups).most_common(8)),
        "values in a group": spread(len(group) for _, group in groups),
        "option values": len(values),
        "awkward option values": {
            name: sum(is_awkward(value, mark) for value in values) for name, mark in AWKWARD.items()
        },
    }


def goal_shape(env: WebShopEnv, catalogue: Catalogue) -> dict[str, Any]:
    """Return statistics of the goals."""
    goals = [env.shop.goals.goal(number) for number in range(len(env.goals))]
    targets = {goal.row: goal for goal in goals}
    sold = [catalogue.product(row) for row in targets]
    return {
        "goals": len(goals),
        "products": len(targets),
        "options in a goal": counted(len(goal.goal_options) for goal in goals),
        "attributes of a product's goals": counted(len(goal.attributes) for goal in targets.values()),
        "goals of a product": spread(prod(len(values) for _, values in product.options) for product in sold),
        "instruction, characters": spread(len(goal.instruction_text) for goal in goals),
        "without a limit of the price": sum(goal.price_upper >= 1e6 for goal in goals),
        "distinct attributes": len({attribute for goal in targets.values() for attribute in goal.attributes}),
        "sum of weights": round(sum(goal.weight for goal in goals), 2),
    }


def search_shape(env: WebShopEnv) -> dict[str, Any]:
    """Return at which rank the instruction as a query finds its product, over all goals and drawn by weight."""
    goals = env.shop.goals

    def rank(number: int) -> int:
        hits = env.shop.engine.rows(as_query(goals.goal(number).instruction_text).lower())
        return hits.index(goals.row(number)) + 1 if goals.row(number) in hits else 51

    drawn = [goals.draw(share) for share in np.random.default_rng(0).random(NUM_GOALS)]
    goal_sets = {"all goals": range(len(goals)), f"{NUM_GOALS} drawn by weight": drawn}
    ranks = {name: np.array([rank(number) for number in numbers]) for name, numbers in goal_sets.items()}
    return {
        name: {f"in top {k}": round(float((array <= k).mean()), 3) for k in (1, 3, 10, 50)}
        for name, array in ranks.items()
    }


def open_env(catalogue: Catalogue) -> WebShopEnv:
    """Return the environment on a catalogue, without wrappers."""
    env = gym.make("tsr/WebShop-v0", catalogue=str(catalogue.path), max_turns=15).unwrapped
    assert isinstance(env, WebShopEnv)
    return env


def describe(catalogue: Catalogue) -> dict[str, Any]:
    """Return everything that is compared."""
    env = open_env(catalogue)
    products = [catalogue.product(row) for row in range(len(catalogue))]
    return {
        "of products": product_shape(products),
        "of goals": goal_shape(env, catalogue),
        "search": search_shape(env),
        "success": {name: success(env, numbers) for name, numbers in samples(env).items()},
    }


def samples(env: WebShopEnv) -> dict[str, list[int]]:
    """Return goals that are equally likely, and goals drawn by weight."""
    rng = np.random.default_rng(1)
    equally = rng.permutation(len(env.goals))[:NUM_GOALS].tolist()
    return {
        "goals equally likely": equally,
        "by weight": [env.shop.goals.draw(share) for share in rng.random(NUM_GOALS)],
    }


def success(env: WebShopEnv, numbers: list[int]) -> dict[str, float]:
    """Return the success of scripted shoppers under the fixed rules."""
    shoppers = {"rule": RuleShopper(), "first hit, no options": FirstHitShopper(), "oracle": OracleShopper()}
    return {
        name: round(float(np.mean([played.success for played in play(env, shopper, numbers)])), 3)
        for name, shopper in shoppers.items()
    }


def generated(folder: Path, seed: int) -> Catalogue:
    """Return the generated catalogue of a seed."""
    write_catalogue(folder / f"files-{seed}", NUM_PRODUCTS, seed)
    return import_catalogue(folder / f"files-{seed}", folder / f"store-{seed}", with_nouns=False)


def main() -> None:
    """Compare, and write results/webshop_catalogue.json."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        make = partial(generated, folder)
        tables = {"generated": describe(make(0))}
        if REAL.is_dir():
            tables = {"real": describe(import_catalogue(REAL, folder / "real", with_nouns=False))} | tables
        seeds = {}
        for seed in SEEDS:
            env = open_env(make(seed))
            seeds[str(seed)] = search_shape(env) | {
                part: success(env, numbers) for part, numbers in samples(env).items()
            }
    write_result(
        "webshop_catalogue",
        {
            "what": f"the real small set and {NUM_PRODUCTS} generated products (seed 0); fixed rules, heuristic nouns",
            "skipped": [] if REAL.is_dir() else [f"real: no folder {REAL}"],
            "tables": tables,
            "seeds": seeds,
        },
    )


if __name__ == "__main__":
    run_timed(main)
