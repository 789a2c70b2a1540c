"""How much a search's selected return overstates what its choice is worth, on slippery ice whose values are exact.

Default FrozenLake (4x4, slip 1/3, 5 turns of at most 5 actions, 10 in all), candidates by uniformly random play, the
score of TSR's Eq. 14. Each search runs once from the start of every instance, on imagined dice; what it selected is
compared with exact values, and with episodes played on fresh dice with the same search before every turn.

- selected: success of the selected path, as it was imagined. This is what a search reports of itself.
- worth: exact chances of success of what it chose: its turns played as they stand; its first turn, then the policy; its
  first turn, then the best play.
- played: success of played episodes. With the noise "same" the search sees the episode's own dice, which no agent can.
- overstates: selected minus each of these, minus the value of the policy and minus the optimum.
- score overstated: the score of the selected first turn minus the exact expectation of that turn's score.

Reported with them: the exact value of the policy and the exact optimum of the same instances, and best-of-8 by return,
whose selected success is known in closed form: 1 - (1 - value of the policy) ** 8. Intervals are 95 % bootstraps over
instances. Run: python -m benchmarks.selection_bias [--quick]
"""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from benchmarks.measure import write_result
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.intervals import Interval, pooled_mean
from tsr_gym.agents.episodes.play import held_out, play
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.policies.random_policy import legal_player
from tsr_gym.agents.strategies import beam, best_of_n, greedy
from tsr_gym.seeds import derive_seed
from tsr_gym.stack import Noise
from tsr_gym.tree import Strategy, Tree
from tsr_gym_envs.frozen_lake.env import FrozenLakeEnv
from tsr_gym_envs.frozen_lake.rules import FrozenLakeState, proximity
from tsr_gym_envs.frozen_lake.values import Array, blind_value, random_values, read_turn, turn_value

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "selection_bias.png"
SEARCHES: dict[str, Strategy] = {
    "greedy, best of 8 a turn": partial(greedy, branching=8),
    "beam, width 2, 4 candidates": partial(beam, width=2, branching=4),
}
N = 8
WORTH = ("its turns", "its first turn, then the policy", "its first turn, then the best play")


class Mode(NamedTuple):
    """How candidates are tried."""

    noise: Noise
    repeats: int = 1
    risk: float | None = None

    @property
    def name(self) -> str:
        """In a few words."""
        risk = "" if self.risk is None else f", quantile {self.risk}"
        return f"{self.noise}{'' if self.repeats == 1 else f' x {self.repeats}'}{risk}"


MODES = (
    Mode("same"),
    Mode("common"),
    Mode("common", 4),
    Mode("fresh"),
    Mode("fresh", 2),
    Mode("fresh", 4),
    Mode("fresh", 8),
    Mode("fresh", 8, 0.25),
)


def lakes(mode: Mode) -> EnvPool:
    """Return environments in which candidates are tried in a mode."""
    return EnvPool("frozen_lake", {}, score="FrozenLakeScore", noise=mode.noise, repeats=mode.repeats, risk=mode.risk)


class Exact:
    """The exact values of one instance."""

    def __init__(self, env: FrozenLakeEnv, state: FrozenLakeState) -> None:
        self.env, self.state, self.limits = env, state, env.limits
        self.ice = env.settings.ice
        turns, actions, per_turn = self.limits.max_turns, self.limits.max_actions, self.limits.max_actions_per_turn
        assert turns is not None
        assert actions is not None
        assert per_turn is not None
        self.turns, self.actions, self.per_turn = turns, actions, per_turn
        self.policy = float(self._random(turns, actions)[state.position])
        optimum = env.best_value(state, turns, actions)
        assert optimum is not None
        self.optimum = optimum

    def _random(self, turns: int, actions: int) -> Array:
        return random_values(self.state.desc, turns, actions, max_actions=self.per_turn, ice=self.ice)

    def selected(self, tree: Tree) -> dict[str, float]:
        """Return the return of the selected path, and its exact value."""
        path = [tree.nodes[index] for index in tree.path(tree.chosen[0])[1:]]
        texts = [str(node.info["action"]) for node in path]
        first = read_turn(texts[0], self.actions, self.limits)
        left = self.turns - 1, self.actions - len(first)
        cells = [FrozenLakeState(self.state.desc, cell) for cell in range(len("".join(self.state.desc)))]
        best = np.array([self.env.best_value(cell, *left) for cell in cells])
        scores = np.array([proximity(cell, hole_penalty=10.0) for cell in cells])
        worth = partial(turn_value, self.state, first, ice=self.ice)
        return {
            "selected": float(bool(path[-1].info["success"])),
            "its turns": blind_value(self.state, texts, ice=self.ice, limits=self.limits),
            "its first turn, then the policy": worth(self._random(*left)),
            "its first turn, then the best play": worth(best),
            "score overstated": path[0].score - worth(scores),
        }


def instances(tasks: Sequence[int]) -> list[Exact]:
    """Return the exact values of some instances."""
    pool = lakes(Mode("fresh"))
    base = pool.base
    assert isinstance(base, FrozenLakeEnv)
    exact = []
    for task in tasks:
        env: Any = pool.set([task])[0].unwrapped
        exact.append(Exact(base, env.state))
    return exact


def grow(pool: EnvPool, strategy: Strategy, tasks: Sequence[int], seed: int, noise: Noise) -> list[Tree]:
    """Return a tree for every instance, grown from its start."""
    seeds = [derive_seed(seed, "bias", task) for task in tasks]
    return search(pool.set(tasks), legal_player(pool.base), strategy, seeds=seeds, noise=noise)


def measure(strategy: Strategy, mode: Mode, tasks: Sequence[int], seeds: range, exact: list[Exact]) -> dict[str, Any]:
    """Return the selected returns, their exact values, and the success of played episodes."""
    pool = lakes(mode)
    rows: list[dict[str, float]] = []
    owners: list[int] = []
    steps = 0
    for seed in seeds:
        trees = grow(pool, strategy, tasks, seed, mode.noise)
        rows += [values.selected(tree) for values, tree in zip(exact, trees, strict=True)]
        owners += range(len(tasks))
        steps += sum(tree.spent.env_steps for tree in trees)
    played = play(pool, legal_player(pool.base), strategy, tasks=tasks, seeds=seeds, noise=mode.noise)
    wins = [float(np.mean(row)) for row in played.successes]
    truths = {name: [row[name] for row in rows] for name in WORTH}
    truths |= {
        "the policy": [exact[owner].policy for owner in owners],
        "the optimum": [exact[owner].optimum for owner in owners],
        "played": [wins[owner] for owner in owners],
    }
    selected = [row["selected"] for row in rows]
    return {
        "selected": shown(selected, owners),
        "worth": {name: shown(truths[name], owners) for name in WORTH},
        "played": shown(wins, range(len(wins))),
        "clairvoyant": mode.noise == "same",
        "overstates": {
            name: shown([estimate - value for estimate, value in zip(selected, values, strict=True)], owners)
            for name, values in truths.items()
        },
        "score overstated": shown([row["score overstated"] for row in rows], owners),
        "env steps a search": round(steps / len(rows), 1),
        "env steps a played episode": round(played.spent.env_steps / played.num_episodes, 1),
    }


def shown(values: Sequence[float], owners: Sequence[int]) -> dict[str, float]:
    """Return a mean and its interval for the result file."""
    estimate = pooled_mean(values, owners)
    assert estimate is not None
    return {name: round(number, 4) for name, number in zip(Interval._fields, estimate, strict=True)}


def best_by_return(tasks: Sequence[int], seeds: range, exact: list[Exact]) -> dict[str, Any]:
    """Return the selected success of best-of-N by return, and what it is in closed form."""
    pool = lakes(Mode("fresh"))
    rows = [
        float(bool(tree.nodes[tree.chosen[0]].info["success"]))
        for seed in seeds
        for tree in grow(pool, partial(best_of_n, n=N), tasks, seed, "fresh")
    ]
    closed = float(np.mean([1 - (1 - values.policy) ** N for values in exact]))
    return {"selected": shown(rows, [*range(len(tasks))] * len(seeds)), "closed form": round(closed, 4)}


def draw(numbers: dict[str, Any], out: Path) -> None:
    """Draw what was selected, what it is worth, and what repeats cost, and save a PNG."""
    figure = Figure(figsize=(17, 5), layout="constrained")
    panels = figure.subplots(1, len(SEARCHES) + 1)
    for panel, (name, by_mode) in zip(panels, numbers["searches"].items(), strict=False):
        _draw_modes(panel, name, by_mode, numbers)
    last = panels[-1]
    for number, (name, by_mode) in enumerate(numbers["searches"].items()):
        repeats = [mode for mode in MODES if mode.noise == "fresh" and mode.risk is None]
        rows = [by_mode[mode.name] for mode in repeats]
        places = [row["env steps a search"] for row in rows]
        _draw_points(last, places, [row["overstates"]["played"] for row in rows], f"C{number}", "o-", name)
    last.axhline(0, color="grey", linewidth=0.8)
    last.set_xscale("log")
    last.set_xticks([20, 50, 100, 200], labels=["20", "50", "100", "200"])
    last.set_xticks([], minor=True)
    last.set(
        xlabel="environment steps a search: 1, 2, 4 and 8 draws a candidate",
        ylabel="selected minus played success",
        title="repeats, and what they cost",
    )
    last.legend(fontsize=8)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=9)
    figure.savefig(out, dpi=130)


def _draw_modes(panel: Any, name: str, by_mode: dict[str, Any], numbers: dict[str, Any]) -> None:
    rows = list(by_mode.values())
    shown_ones = {
        "selected": [row["selected"] for row in rows],
        "played": [row["played"] for row in rows],
        "its first turn, then the best play": [row["worth"]["its first turn, then the best play"] for row in rows],
        "its turns, played as they stand": [row["worth"]["its turns"] for row in rows],
    }
    for number, (what, points) in enumerate(shown_ones.items()):
        places = [place + 0.15 * (number - 1.5) for place in range(len(rows))]
        _draw_points(panel, places, points, f"C{number}", "o", what)
    panel.axhline(numbers["optimum"], color="grey", linestyle="--", label="exact optimum")
    panel.axhline(numbers["value of the policy"], color="grey", linestyle=":", label="exact value of the policy")
    panel.set_xticks(range(len(by_mode)), labels=list(by_mode), rotation=30, ha="right")
    panel.set(ylabel="chance of success", ylim=(0, 1.02), title=name)


def _draw_points(
    panel: Any, places: Sequence[float], rows: Sequence[dict[str, float]], color: str, marker: str, label: str
) -> None:
    means = [row["mean"] for row in rows]
    spread = [[row["mean"] - row["low"] for row in rows], [row["high"] - row["mean"] for row in rows]]
    panel.errorbar(places, means, yerr=np.maximum(spread, 0), fmt=marker, color=color, label=label, capsize=2)


def main() -> None:
    """Measure, draw, and write results/selection_bias.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few instances, nothing written: only to see that it runs")
    quick = parser.parse_args().quick
    tasks, seeds = held_out(16 if quick else 256), range(1 if quick else 4)
    exact = instances(tasks)
    numbers: dict[str, Any] = {
        "what": "success of what a search selected against its exact value and against played episodes, FrozenLake",
        "instances": len(tasks),
        "seeds": len(seeds),
        "value of the policy": round(float(np.mean([values.policy for values in exact])), 4),
        "optimum": round(float(np.mean([values.optimum for values in exact])), 4),
        "best of 8 by return": best_by_return(tasks, seeds, exact),
        "searches": {
            name: {mode.name: measure(strategy, mode, tasks, seeds, exact) for mode in MODES}
            for name, strategy in SEARCHES.items()
        },
    }
    if quick:
        with TemporaryDirectory() as folder:
            draw(numbers, Path(folder) / PICTURE.name)
        print(json.dumps(numbers, indent=2))
        return
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    draw(numbers, PICTURE)
    write_result("selection_bias", numbers)


if __name__ == "__main__":
    main()
