"""Search alone, without learning: success of played episodes against what every strategy spends, on the four worlds.

Before every turn a strategy searches from where the episode stands, on imagined dice (`fresh`) and guided by the
environment's proxy score; the first turn of the path that it chose is then played on the episode's own dice. Players
are uniformly random among legal turns and, for the grid worlds, the embedded base model. They are compared with the
player alone, random play and the best that is possible: exact where the environment knows it (Sokoban, FrozenLake),
otherwise its oracle's own play. Held-out instances, each played once per setting, the model a quarter as many; 95 %
Wilson intervals. RetrievalQAScore's guide sees the labels, so its curves are a ceiling of guidance, not a method for a
test.
Run: python -m benchmarks.search_budget [--quick]
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from benchmarks.measure import write_result
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.play import PlayedEpisodes, bars, evaluate, held_out, play
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.models.language_model import load_policy
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.random_policy import legal_player
from tsr_gym.agents.strategies import choose_strategy
from tsr_gym.agents.teaching.base_model import default_model
from tsr_gym.state_env import episode_of
from tsr_gym.tree import Candidate, Expand, Policy, Tree

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
# A strategy and its numbers for every budget b; searches look at most three turns ahead, best-of-N to the end.
STRATEGIES: dict[str, Callable[[int], str]] = {
    "naive": lambda b: f"naive(rollouts={b})",
    "best_of_n": lambda b: f"best_of_n(n={b})",
    "greedy": lambda b: f"greedy(branching={b}, depth=1)",
    "beam": lambda b: f"beam(width=2, branching={b}, depth=3)",
    "lookahead": lambda b: f"lookahead(branching={b}, depth=2, moves=1)",
    "random_branching": lambda b: f"random_branching(trees={b}, nodes=1, rounds=1)",
    "puct": lambda b: f"puct(simulations={3 * b}, moves=1)",
    "best_first": lambda b: f"best_first(expansions={b}, samples=3)",
    "adaptive": lambda b: f"adaptive(min_rollouts={min(b, 4)}, max_rollouts={2 * b})",
}
BUDGETS = (1, 2, 4, 8)
TICKS = (5, 10, 20, 50, 100, 200)


@dataclass(frozen=True, slots=True)
class World:
    """A world and its guide.

    Attributes:
        env: Short name.
        score: Scorer.
        settings: Of the environment.
        with_model: Whether the embedded model plays it.
    """

    env: str
    score: str
    settings: dict[str, Any]
    with_model: bool


WORLDS = (
    World("sokoban", "SokobanScore(potential='estimate')", {"split": "test"}, True),
    World("frozen_lake", "FrozenLakeScore", {"split": "test"}, True),
    World("webshop", "WebShopScore", {"max_turns": 7}, False),
    World("retrieval_qa", "RetrievalQAScore(kind='first_occurrence')", {}, False),
)


class OraclePolicy:
    """Answer every wish with the environment's own best turn."""

    def __init__(self, pool: EnvPool) -> None:
        self.base = pool.base
        self.form = legal_player(pool.base).form

    def __call__(self, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        """Return the best turn as often as it is wanted."""
        return [[self._best(tree, wish.node)] * wish.samples for tree, wish in requests]

    def _best(self, tree: Tree, node: int) -> Candidate:
        episode, base = episode_of(tree.nodes[node].snapshot), self.base
        limits = base.limits
        turns = None if limits.max_turns is None else limits.max_turns - episode.turns
        actions = None if limits.max_actions is None else limits.max_actions - episode.actions
        return Candidate(self.form.format(base.optimal_turn(episode.state, turns, actions) or ""))


def players(world: World) -> list[tuple[str, EnvPool, Policy]]:
    """Return who plays a world, and where."""
    pool = EnvPool(world.env, world.settings, score=world.score)
    sides: list[tuple[str, EnvPool, Policy]] = [("random", pool, legal_player(pool.base))]
    if world.with_model:
        policy = load_policy(default_model(world.env, ()), device=torch.device("cpu"))
        player = ModelPlayer(world.env, TaskConfig(score=world.score), ModelConfig(), policy)
        spoken = player.pool("test")
        sides.append(("base model", spoken, player.chat_about(spoken.base, temperature=1.0)))
    return sides


def told(played: PlayedEpisodes) -> dict[str, Any]:
    """Return success and cost of one setting."""
    success, spent = played.success, played.spent
    return {
        "success": success.mean,
        "low": success.low,
        "high": success.high,
        "env_steps": spent.env_steps / played.num_episodes,
        "sampled_tokens": spent.sampled_tokens / played.num_episodes,
        "model_calls": spent.model_calls / played.num_episodes,
    }


def measure(world: World, instances: int, budgets: Sequence[int]) -> dict[str, Any]:
    """Return all players' curves in one world, and the bars of the world."""
    curves: dict[str, Any] = {}
    for name, pool, policy in players(world):
        torch.set_num_threads(1)
        tasks = held_out(instances if name == "random" else instances // 4)
        alone = told(play(pool, policy, None, tasks=tasks, seeds=(0,)))
        curves[name] = {"instances": len(tasks), "alone": alone, "strategies": {}}
        for strategy, written in STRATEGIES.items():
            rows = []
            for budget in budgets:
                search = choose_strategy(written(budget))
                rows.append({"search": written(budget), **told(play(pool, policy, search, tasks=tasks, seeds=(0,)))})
                print(world.env, name, rows[-1]["search"], f"{rows[-1]['success']:.3f}", flush=True)
            curves[name]["strategies"][strategy] = rows
    pool = players(world)[0][1]
    tasks = held_out(instances)
    exact = bars(pool, tasks=tasks)
    random, optimal = exact.random, exact.optimal
    if optimal is None:
        optimal = evaluate(pool, OraclePolicy(pool), tasks=tasks).success
    return {
        "score": world.score,
        "random": curves["random"]["alone"]["success"] if random is None else random,
        "optimal": optimal,
        "exact_bars": exact.optimal is not None,
        "players": curves,
    }


def plot(results: dict[str, Any], path: Path) -> None:
    """Draw success against environment steps, a panel per world and player."""
    panels = [(world, player) for world, result in results.items() for player in result["players"]]
    figure = Figure(figsize=(11, 3.4 * -(-len(panels) // 2)), layout="constrained")
    for number, (world, player) in enumerate(panels, start=1):
        axes = figure.add_subplot(-(-len(panels) // 2), 2, number)
        result = results[world]
        for strategy, rows in result["players"][player]["strategies"].items():
            axes.plot(
                [row["env_steps"] for row in rows], [row["success"] for row in rows], marker="o", ms=3, label=strategy
            )
        for height, words, style, place in (
            (result["players"][player]["alone"]["success"], "policy alone", "--", "right"),
            (result["random"], "random", ":", "left"),
            (result["optimal"], "optimal", "-.", "right"),
        ):
            axes.axhline(height, color="0.4", linestyle=style, linewidth=1)
            at = (0 if place == "left" else 1, height)
            axes.annotate(words, at, xycoords=("axes fraction", "data"), ha=place, va="bottom", fontsize=7)
        axes.set(
            title=f"{world}, {player}",
            xscale="log",
            xlabel="environment steps per episode",
            ylabel="success",
            ylim=(0, 1.05),
        )
        axes.xaxis.set_major_locator(FixedLocator(TICKS))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_locator(NullLocator())
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure all worlds, write the numbers and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few instances and budgets, and no files of record")
    args = parser.parse_args()
    instances, budgets = (16, (1, 4)) if args.quick else (256, BUDGETS)
    results = {world.env: measure(world, instances, budgets) for world in WORLDS}
    write_result("search_budget", {"noise": "fresh", "budgets": budgets, "worlds": results})
    if not args.quick:
        plot(results, IMAGES / "search_budget.png")


if __name__ == "__main__":
    main()
