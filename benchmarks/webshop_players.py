"""How well scripted shoppers do: a floor, two rules that anybody could follow, and the ceiling.

On the real small set (../shared, left out where it is missing) and on the embedded catalogue, under both rules, in 15
turns, on the first 500 goals in the environment's order. Intervals are 95 % bootstraps over the products of the goals,
because goals of one product go together. Run: python -m benchmarks.webshop_players
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

import tsr_gym  # noqa: F401 (registers the environments)
from benchmarks.measure import SHARED, write_result
from tsr_gym_envs.webshop.env import WebShopEnv
from tsr_gym_envs.webshop.oracle import as_query
from tsr_gym_envs.webshop.shoppers import FirstHitShopper, OracleShopper, RandomShopper, RuleShopper, Shopper, play

NUM_GOALS = 500
NUM_BOOTSTRAPS = 2000
REAL = SHARED / "data" / "webshop"
SHOPPERS: dict[str, Callable[[], Shopper]] = {
    "random": lambda: RandomShopper(np.random.default_rng(0)),
    "first hit, no options": FirstHitShopper,
    "rule": RuleShopper,
    "oracle": OracleShopper,
}
# Measured with the original's own code on the real small set; its nouns came from a stand-in, the rule among them.
ORIGINAL = {
    "first hit, no options": {"reward": 0.531, "success": 0.022},
    "rule": {"reward": 0.733, "success": 0.478},
    "oracle over the 50 hits of the instruction": {"reward": 0.992, "success": 0.956},
}


def catalogues() -> dict[str, str | None]:
    """Return the catalogues that are there, by name."""
    return ({"real": str(REAL)} if REAL.is_dir() else {}) | {"embedded": None}


def open_env(catalogue: str | None, **settings: Any) -> WebShopEnv:
    """Return the environment without wrappers."""
    env = gym.make("tsr/WebShop-v0", catalogue=catalogue, **settings).unwrapped
    assert isinstance(env, WebShopEnv)
    return env


def interval(values: Sequence[float], groups: Sequence[int]) -> dict[str, float]:
    """Return a mean and its 95 % interval, whole groups drawn with replacement."""
    _, group = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(group, weights=values), np.bincount(group)
    rng = np.random.default_rng(0)
    drawn = (rng.integers(len(sums), size=len(sums)) for _ in range(NUM_BOOTSTRAPS))
    low, high = np.quantile([sums[one].sum() / counts[one].sum() for one in drawn], [0.025, 0.975])
    return {"mean": round(float(np.mean(values)), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def measure_shoppers(env: WebShopEnv) -> dict[str, Any]:
    """Return mean reward, success and turns of each shopper."""
    goals = range(min(NUM_GOALS, len(env.goals)))
    rows = [env.shop.goals.row(goal) for goal in goals]
    over = partial(interval, groups=rows)
    found: dict[str, Any] = {}
    for name, shopper in SHOPPERS.items():
        records = play(env, shopper(), goals)
        found[name] = {
            "reward": over([record.reward for record in records]),
            "success": over([float(record.success) for record in records]),
            "purchased": round(float(np.mean([record.purchased for record in records])), 4),
            "turns": round(float(np.mean([record.turns for record in records])), 2),
        }
    return found


def share_in_top_10(env: WebShopEnv) -> dict[str, float]:
    """Return how often the instruction as a query finds the target on the first page."""
    goals = [env.shop.goals.goal(number) for number in range(min(NUM_GOALS, len(env.goals)))]
    hits = [goal.row in env.shop.engine.rows(as_query(goal.instruction_text).lower())[:10] for goal in goals]
    return interval([float(hit) for hit in hits], [goal.row for goal in goals])


def main() -> None:
    """Measure, and write results/webshop_players.json."""
    tables: dict[str, Any] = {}
    for name, catalogue in catalogues().items():
        for rules in ("original", "fixed"):
            env = open_env(catalogue, rules=rules, max_turns=15)
            tables[f"{name}, {rules}"] = {
                "goals": len(env.goals),
                "noun_source": env.shop.noun_source,
                "target_in_top_10": share_in_top_10(env),
                **measure_shoppers(env),
            }
    write_result(
        "webshop_players",
        {
            "what": f"scripted shoppers on the first {NUM_GOALS} goals, 15 turns; 95 % intervals over products",
            "skipped": [] if REAL.is_dir() else [f"real: no folder {REAL}"],
            "tables": tables,
            "measured_with_the_original": ORIGINAL,
        },
    )


if __name__ == "__main__":
    main()
