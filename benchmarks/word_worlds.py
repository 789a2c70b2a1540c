"""The shop and retrieval QA: what their embedded base models learn, and how well their teachers play.

``tsr train webshop`` and ``tsr train retrieval_qa`` run with the settings of the models' cards and plain play. Both
stop after as many updates as fit into ten minutes on two cores, without the time that builds the base model.

--teachers measures the teachers of small models, which use only what an agent is shown, and the poor players: in the
compact form of small models, on instances of every split, with the exact bars of the same instances. Words are counted
over whole episodes, prompts and answers together.

Run: python -m benchmarks.word_worlds [--updates N] [--draw] [--teachers]
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from matplotlib.figure import Figure

import tsr_gym  # noqa: F401 (registers the environments)
from benchmarks.measure import RESULTS, write_result
from benchmarks.tsr_runs import Row, command, measured, train
from tsr_gym.teaching import Player, Teaching

NUM_INSTANCES = 400
TAUGHT_WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "shop": ("tsr/WebShop-v0", {}),
    "qa, 1-2 hops": ("tsr/RetrievalQA-v0", {}),
    "qa, 3-4 hops": ("tsr/RetrievalQA-v0", {"hops": [3, 4], "max_turns": 4}),
}


def measure_split(name: str, settings: dict[str, Any], split: str) -> dict[str, Any]:
    """Return how the players of one world do on the instances of a split, and their bars."""
    taught: Any = gym.make(name).unwrapped
    env: Any = gym.make(name, split=split, **{**taught.teaching().env_settings, **settings}).unwrapped
    teaching: Teaching = env.teaching()
    bars = [env.success_bars(env.state) for seed in range(NUM_INSTANCES) if env.reset(seed=seed)]
    random, optimal = (round(float(mean), 4) for mean in np.mean(bars, axis=0))
    players = {"teacher": teaching.teacher_turn, "poor player": teaching.poor_turn}
    by_player = {who: measure_player(env, teaching, turn) for who, turn in players.items()}
    return {**by_player, "random": random, "optimal": optimal, "words known": len(teaching.words or ())}


def measure_player(env: Any, teaching: Teaching, turn: Player) -> dict[str, float]:
    """Return how a player does on the first instances."""
    rng = np.random.default_rng(0)
    accepted, solved, turns, words = 0, 0, 0, []
    for seed in range(NUM_INSTANCES):
        texts = [env.reset(seed=seed)[0]]
        while not (env.episode.terminated or env.episode.truncated):
            answer = turn(env, rng)
            texts += [answer, env.step(answer)[0]]
            turns += 1
        solved += env.is_success(env.state)
        accepted += teaching.accepts(env)
        words.append(len(" ".join(texts).split()))
    median, most = np.percentile(words, [50, 90])
    return {
        "success": round(solved / NUM_INSTANCES, 4),
        "demonstrations kept": round(accepted / NUM_INSTANCES, 4),
        "turns": round(turns / NUM_INSTANCES, 2),
        "words, median": float(median),
        "words, 90th percentile": float(most),
    }


def measure_teachers() -> None:
    """Write results/teachers.json."""
    results = {
        world: {split: measure_split(name, settings, split) for split in ("train", "valid", "test")}
        for world, (name, settings) in TAUGHT_WORLDS.items()
    }
    write_result("teachers", {"instances": NUM_INSTANCES, **results})


NAME = "word_worlds"
FIGURE = RESULTS.parents[1] / "docs" / "images" / f"{NAME}.png"
WORLDS = {"webshop": "the shop", "retrieval_qa": "questions of one and two hops"}


@dataclass(frozen=True, slots=True)
class WordArgs:
    """Train both worlds of words with the settings of their cards, and draw how they learn."""

    updates: int = 80
    """Of each run."""
    out: Path = Path("runs/word_worlds")
    """Where runs go; what is finished there is not done again."""
    workers: int = os.cpu_count() or 1
    """Runs side by side."""
    draw: bool = False
    """Run nothing: draw the result file again."""
    teachers: bool = False
    """Train nothing: measure the teachers, and write results/teachers.json."""


def main() -> int:
    """Train, record and draw."""
    args = tyro.cli(WordArgs)
    if args.teachers:
        measure_teachers()
        return 0
    if not args.draw:
        flags = {world: f"train {world} --updates {args.updates}" for world in WORLDS}
        train(args.out, flags, args.workers)
        results = {world: measured(args.out / "cells" / world) for world in WORLDS}
        rows = [{"world": world, "command": command(flags[world])} | row for world, row in results.items() if row]
        write_result(NAME, {"runs": rows})
    draw(json.loads((RESULTS / f"{NAME}.json").read_text())["runs"], FIGURE)
    return 0


def draw(runs: list[Row], out: Path) -> None:
    """Draw held-out success over the minutes of training, a panel per world, with random and optimal play as lines."""
    figure = Figure(figsize=(4 * len(runs), 3.4), layout="constrained")
    panels = figure.subplots(1, len(runs), squeeze=False)[0]
    for panel, run in zip(panels, runs, strict=True):
        minutes = [point["seconds"] / 60 for point in run["points"]]
        panel.plot(minutes, [100 * point["success"] for point in run["points"]], "o-", label="trained")
        for bar, colour in (("random", "grey"), ("optimal", "C2")):
            level = run["points"][-1][bar]
            if level is not None:
                panel.axhline(100 * level, color=colour, linestyle="--", label=bar)
        panel.set_title(f"tsr train {run['world']}: {WORLDS[run['world']]}", fontsize=10)
        panel.set_xlabel("minutes of training")
        panel.set_ylim(0, None)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("held-out success, %")
    panels[0].legend(fontsize=8)
    figure.savefig(out, dpi=140)


if __name__ == "__main__":
    sys.exit(main())
