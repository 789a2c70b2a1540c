"""How well scripted shoppers do, and what the proxy scores of WebShop are worth.

- players: a random shopper, two rules and the oracle, on the real small set (../shared, left out where it is missing)
  and on the embedded catalogue, under both rules, in 15 turns, on the first 500 goals in the environment's order.
  Intervals are 95 % bootstraps over the products of the goals, because goals of one product depend on each other.
- calibration: scores against the best reachable reward, and as guides of a search. States come from episodes in which
  the rule, the oracle or chance takes each turn, mixed anew per episode. At each state the successors by the rule, the
  rule without options, the oracle and three random actions are compared: the mean rank correlation (Spearman) of score
  and best reachable reward, where that differs, and what taking the best-scored one loses. A second correlation is over
  all states; a score of progress cannot do well in it, because along an episode progress grows while the best reachable
  reward falls. Last, episodes are played by the score: of four actions, each the rule's or a random one, the best one
  by score is taken; also with the best reachable reward as the guide, ties broken by progress. Intervals are 95 %
  bootstraps over episodes.

Run: python -m benchmarks.webshop_players [players] [calibration]
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import tsr_gym  # noqa: F401 (registers the environments)
from benchmarks.measure import SHARED, run_parts, write_result
from tsr_gym_envs.webshop.env import WebShopEnv
from tsr_gym_envs.webshop.oracle import as_query, best_reachable
from tsr_gym_envs.webshop.rules import follow
from tsr_gym_envs.webshop.score import fit, overlap, progress
from tsr_gym_envs.webshop.shoppers import FirstHitShopper, OracleShopper, RandomShopper, RuleShopper, Shopper, play
from tsr_gym_envs.webshop.state import ShopState

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
    low, high = np.quantile([sums[episodes].sum() / counts[episodes].sum() for episodes in drawn], [0.025, 0.975])
    return {"mean": round(float(np.mean(values)), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def measure_shoppers(env: WebShopEnv) -> dict[str, Any]:
    """Return mean reward, success and turns of each shopper."""
    goals = range(min(NUM_GOALS, len(env.goals)))
    rows = [env.shop.goals.row(goal) for goal in goals]
    over = partial(interval, groups=rows)
    summary: dict[str, Any] = {}
    for name, shopper in SHOPPERS.items():
        records = play(env, shopper(), goals)
        summary[name] = {
            "reward": over([record.reward for record in records]),
            "success": over([float(record.success) for record in records]),
            "purchased": round(float(np.mean([record.purchased for record in records])), 4),
            "turns": round(float(np.mean([record.turns for record in records])), 2),
        }
    return summary


def share_in_top_10(env: WebShopEnv) -> dict[str, float]:
    """Return how often the instruction as a query finds the target on the first page."""
    goals = [env.shop.goals.goal(number) for number in range(min(NUM_GOALS, len(env.goals)))]
    hits = [goal.row in env.shop.engine.rows(as_query(goal.instruction_text).lower())[:10] for goal in goals]
    return interval([float(hit) for hit in hits], [goal.row for goal in goals])


def measure_players() -> None:
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


NUM_EPISODES = 200
TURNS = (5, 9, 15)
ALPHAS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
CANDIDATES = 4
SIMILARITIES = {"paper": overlap, "attributes": fit}

Rates = dict[str, float]


class Measured(NamedTuple):
    """A state's parts of the score, and the best reward that can be reached from it."""

    progress: float
    paper: float
    attributes: float
    best: float

    def score(self, variant: str, alpha: float) -> float:
        """Return Eq. 15 with beta 1."""
        return alpha * self.progress + (self.paper if variant == "paper" else self.attributes)


def measure(env: WebShopEnv, state: ShopState, left: int) -> Measured:
    """Return the scores of a state and the best reward that can be reached from it."""
    shop = env.shop
    best = best_reachable(shop, state, left)
    return Measured(progress(shop, state), overlap(shop, state), fit(shop, state), best)


def successors(env: WebShopEnv, actions: list[str]) -> list[ShopState]:
    """Return where actions lead; those that mean nothing are left out."""
    following = (follow(env.shop, env.state, env.shop.parse(action)) for action in dict.fromkeys(actions))
    return [after for after in following if after is not None]


def visit(env: WebShopEnv, turns: int, rng: np.random.Generator) -> tuple[list[Measured], list[list[Measured]]]:
    """Play an episode; return the states that it reached, and for every turn all successors that were compared."""
    chance = RandomShopper(rng)
    shoppers = (RuleShopper(), OracleShopper(), chance)
    shares = rng.dirichlet(np.ones(len(shoppers)))
    env.reset(options={"goal": env.shop.goals.draw(rng.random())})
    reached, compared, ended = [], [], False
    for left in range(turns - 1, -1, -1):
        proposals = [shopper.act(env) for shopper in (*shoppers[:2], FirstHitShopper(), chance, chance, chance)]
        compared.append([measure(env, state, left) for state in successors(env, proposals)])
        *_, terminated, truncated, _ = env.step(shoppers[rng.choice(len(shoppers), p=shares)].act(env))
        reached.append(measure(env, env.state, left))
        ended = terminated or truncated
        if ended:
            break
    return reached, compared


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks, equal values sharing the mean of theirs."""
    _, place, counts = np.unique(values.round(9), return_inverse=True, return_counts=True)
    shared: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return shared


def spearman(first: list[float], second: list[float]) -> float:
    """Return the rank correlation; 0 where one side is constant."""
    first_ranks, second_ranks = ranks(np.array(first)), ranks(np.array(second))
    return float(np.corrcoef(first_ranks, second_ranks)[0, 1]) if np.ptp(first_ranks) and np.ptp(second_ranks) else 0.0


def loss(candidates: list[Measured], scores: list[float]) -> float:
    """Return the reachable reward that is lost by taking a best-scored candidate, any of them where several are."""
    taken = [candidate.best for candidate, score in zip(candidates, scores, strict=True) if score >= max(scores) - 1e-9]
    return max(candidate.best for candidate in candidates) - float(np.mean(taken))


def correlate(env: WebShopEnv, turns: int) -> dict[str, Any]:
    """Return how scores go with the best reachable reward."""
    played = [visit(env, turns, np.random.default_rng([turns, number])) for number in range(NUM_EPISODES)]
    states = [(number, state) for number, (reached, _) in enumerate(played) for state in reached]
    sets = [(number, candidates) for number, (_, compared) in enumerate(played) for candidates in compared]
    sets = [(number, candidates) for number, candidates in sets if np.ptp([state.best for state in candidates]) > 1e-9]
    owners = [number for number, _ in sets]
    chance = [loss(candidates, [0.0] * len(candidates)) for _, candidates in sets]
    result: dict[str, Any] = {"states": len(states), "sets": len(sets), "loss by chance": interval(chance, owners)}
    for variant in SIMILARITIES:
        for alpha in ALPHAS:
            scored = [[state.score(variant, alpha) for state in candidates] for _, candidates in sets]
            among = [
                spearman(scores, [state.best for state in candidates])
                for (_, candidates), scores in zip(sets, scored, strict=True)
            ]
            losses = [loss(candidates, scores) for (_, candidates), scores in zip(sets, scored, strict=True)]
            result[f"{variant}, alpha {alpha}"] = {
                "all states": pooled(states, variant, alpha),
                "among candidates": interval(among, owners),
                "loss": interval(losses, owners),
            }
    return result


def pooled(states: list[tuple[int, Measured]], variant: str, alpha: float) -> Rates:
    """Return the rank correlation over all states, its interval over episodes."""
    scores = np.array([state.score(variant, alpha) for _, state in states])
    best = np.array([state.best for _, state in states])
    owners = np.array([number for number, _ in states])
    places = [np.flatnonzero(owners == number) for number in range(NUM_EPISODES)]
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(200):
        picks = np.concatenate([places[number] for number in rng.integers(NUM_EPISODES, size=NUM_EPISODES)])
        drawn.append(spearman(list(scores[picks]), list(best[picks])))
    low, high = np.quantile(drawn, [0.025, 0.975])
    mean = spearman(list(scores), list(best))
    return {"mean": round(mean, 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def guide(env: WebShopEnv, turns: int, rate: Callable[[ShopState, int, float], float]) -> dict[str, Rates]:
    """Return reward and success of episodes in which the best-rated of a few actions is taken."""
    rule, rewards, successes = RuleShopper(), [], []
    for number in range(NUM_EPISODES):
        rng = np.random.default_rng([number, turns])
        env.reset(options={"goal": env.shop.goals.draw(rng.random())})
        for left in range(turns - 1, -1, -1):
            others = RandomShopper(rng)
            actions = [rule.act(env) if rng.random() < 0.5 else others.act(env) for _ in range(CANDIDATES)]
            states = [follow(env.shop, env.state, env.shop.parse(action)) or env.state for action in actions]
            rates = [rate(state, left, rng.random()) for state in states]
            _, reward, terminated, truncated, info = env.step(actions[int(np.argmax(rates))])
            if terminated or truncated:
                break
        rewards.append(reward)
        successes.append(float(info["success"]))
    episodes = range(NUM_EPISODES)
    return {"reward": interval(rewards, episodes), "success": interval(successes, episodes)}


def guided(env: WebShopEnv, turns: int) -> dict[str, Any]:
    """Return how well episodes go that are played by each score."""
    shop = env.shop
    result: dict[str, Any] = {
        "chance": guide(env, turns, lambda state, left, draw: draw),
        "best reachable": guide(
            env, turns, lambda state, left, draw: best_reachable(shop, state, left) + 1e-6 * progress(shop, state)
        ),
    }
    for variant, similar in SIMILARITIES.items():
        for alpha in ALPHAS:
            result[f"{variant}, alpha {alpha}"] = guide(
                env,
                turns,
                lambda state, left, draw, alpha=alpha, similar=similar: (  # type: ignore[misc]
                    alpha * progress(shop, state) + similar(shop, state)
                ),
            )
    return result


def measure_calibration() -> None:
    """Measure, and write results/webshop_calibration.json."""
    tables: dict[str, Any] = {}
    for name, catalogue in catalogues().items():
        for turns in TURNS:
            env = open_env(catalogue, max_turns=turns)
            tables[f"{name}, {turns} turns"] = {"correlation": correlate(env, turns), "guided": guided(env, turns)}
    write_result(
        "webshop_calibration",
        {
            "what": "WebShopScore with beta 1 against the best reachable reward, and as a guide; fixed rules",
            "episodes": NUM_EPISODES,
            "candidates": CANDIDATES,
            "tables": tables,
        },
    )


PARTS = {"players": measure_players, "calibration": measure_calibration}

if __name__ == "__main__":
    run_parts(PARTS, sys.argv[1:])
