"""TextWorld without learning: success of searched episodes against their cost, and the cost of snapshots.

Before every turn a strategy searches from the current state, guided by the progress of the quests; then the first turn
of the chosen path is played. One player is uniformly random among admissible commands; the other takes TextWorld's
own next command in a quarter of its turns, as a weak policy with a teacher would. Intervals are 95 % Wilson intervals.
The guide reads TextWorld's facts, so its curves are an upper bound of guidance, not a method for a test.

--speed times a snapshot with its restore against TextWorld's own `env.copy()`, in one run, at the same states of games.
TextWorld's environment has the same information requested as ours always gives: admissible commands, description,
inventory, score. Our state is a value, so a snapshot copies nothing; the interpreter's memory is written back by the
step that follows, which is timed too. Processor time of one process, the least of several rounds.

Needs the extra textworld. Run: python -m benchmarks.textworld_search [--quick] [--world NAME --instances N] [--speed]
A world that is run again replaces its rows in the file; --plot draws the file, and needs matplotlib.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import tsr_gym
from benchmarks.measure import RESULTS, best_seconds, run_timed, write_result
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.play import PlayedEpisodes, held_out, play
from tsr_gym.agents.policies.chat_policy import sample_seeds
from tsr_gym.agents.policies.random_policy import RandomPolicy, legal_player
from tsr_gym.agents.strategies import choose_strategy
from tsr_gym.state_env import episode_of
from tsr_gym.tree import Candidate, Expand, Policy, Tree
from tsr_gym_envs.zmachine.machine import Machine

GAMES = (("simple", 1), ("coin_collector", 105), ("treasure_hunter", 21), ("cooking", 9))
MOMENTS = 10


def theirs_at(story: Path, commands: list[str]) -> Any:
    """Return TextWorld's environment after some commands."""
    import textworld

    wanted = textworld.EnvInfos(
        description=True, inventory=True, score=True, won=True, lost=True, admissible_commands=True
    )
    env = textworld.start(str(story), wanted)
    env.reset()
    for command in commands:
        env.step(command)
    return env


def measure_game(game: str, level: int, rounds: int) -> dict[str, Any]:
    """Return microseconds of a snapshot with its restore, and of a copy, in one game."""
    env = gym.make("tsr/TextWorld-v0", game=game, level=level, num_games=1, max_turns=None)
    env.reset(seed=0)
    base = env.unwrapped
    # The last command of a plan ends the game.
    plan = list(base.plan(base.state) or ())[:-1][: MOMENTS - 1]
    snaps, others = [tsr_gym.snapshot(env)], [theirs_at(base.story(0), [])]
    for number, command in enumerate(plan, start=1):
        env.step(command)
        snaps.append(tsr_gym.snapshot(env))
        others.append(theirs_at(base.story(0), plan[:number]))

    def ours() -> None:
        for snap in snaps:
            tsr_gym.restore(env, snap)
            tsr_gym.snapshot(env)

    def copied() -> None:
        for other in others:
            other.copy()

    machine = Machine(base.story(0))
    memories = [snap.layers[-1].state.episode.state.scene.memory for snap in snaps]

    def moved() -> None:
        for memory in memories:
            machine.put(memory)
            machine.frotz.get_state()

    count = len(snaps)
    pair, copy, memory = (best_seconds(work, repeats=rounds) / count * 1e6 for work in (ours, copied, moved))
    return {
        "level": level,
        "moments": count,
        "snapshot_and_restore_us": round(pair, 1),
        "memory_in_and_out_us": round(memory, 1),
        "textworld_copy_us": round(copy),
        "textworld_copy_by_ours": round(copy / pair),
        "snapshot_bytes": max(len(snap.to_bytes()) for snap in snaps),
    }


def measure_speed(quick: bool) -> None:
    """Measure all games and write results/textworld_speed.json."""
    import textworld

    rounds = 2 if quick else 7
    games = {game: measure_game(game, level, rounds) for game, level in GAMES}
    write_result("textworld_speed", {"textworld": textworld.__version__, "games": games})


STRATEGIES: dict[str, Callable[[int], str]] = {
    "best_of_n": lambda b: f"best_of_n(n={b})",
    "greedy": lambda b: f"greedy(branching={b}, depth=1)",
    "beam": lambda b: f"beam(width=2, branching={b}, depth=3)",
    "puct": lambda b: f"puct(simulations={3 * b}, moves=1)",
}
BUDGETS = (1, 4)
WORLDS: dict[str, dict[str, Any]] = {
    "coin_collector 5": {"game": "coin_collector", "level": 5, "max_turns": 10},
    "treasure_hunter 3": {"game": "treasure_hunter", "level": 3, "max_turns": 10},
    "cooking 1": {"game": "cooking", "level": 1, "max_turns": 12},
    "simple 1": {"game": "simple", "level": 1, "max_turns": 20},
}
GUIDE = "TextWorldScore"
NAME = "textworld_search"
FIGURE = RESULTS.parents[1] / "docs" / "images" / f"{NAME}.png"
P_TEACHER = 0.25


@dataclass(frozen=True, slots=True)
class Teacher:
    """A random player that takes the oracle's turn with a fixed probability."""

    pool: EnvPool
    random: RandomPolicy

    def __call__(self, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        """Return the candidates of every wish."""
        answers = self.random(requests)
        for (tree, wish), seeds, candidates in zip(requests, sample_seeds(requests), answers, strict=True):
            state = episode_of(tree.nodes[wish.node].snapshot).state
            for place, seed in enumerate(seeds):
                # Another stream than that of the random choice of the same seed.
                if np.random.default_rng((seed, 1)).random() < P_TEACHER:
                    turn = self.pool.base.optimal_turn(state, None, None)
                    candidates[place] = candidates[place] if turn is None else Candidate(self.random.form.format(turn))
        return answers


def told(played: PlayedEpisodes) -> dict[str, Any]:
    """Return success and cost of one setting."""
    success, steps = played.success, played.spent.env_steps / played.num_episodes
    return {"success": success.mean, "low": success.low, "high": success.high, "env_steps": steps}


def measure(settings: dict[str, Any], instances: int, budgets: Sequence[int]) -> dict[str, Any]:
    """Return the curves of both players on the games of one kind."""
    by_player: dict[str, Any] = {}
    pool = EnvPool("textworld", {"split": "test", "num_games": 20, **settings}, score=GUIDE)
    random = legal_player(pool.base)
    players: dict[str, Policy] = {"random": random, f"teacher in {P_TEACHER:.0%} of turns": Teacher(pool, random)}
    tasks = held_out(instances)
    for name, policy in players.items():
        alone = told(play(pool, policy, None, tasks=tasks, seeds=(0,)))
        curves: dict[str, list[dict[str, Any]]] = {}
        for strategy, written in STRATEGIES.items():
            curves[strategy] = []
            for budget in budgets:
                search = choose_strategy(written(budget))
                row = {"search": written(budget), **told(play(pool, policy, search, tasks=tasks, seeds=(0,)))}
                curves[strategy].append(row)
                print(settings["game"], name, row["search"], f"{row['success']:.2f} {row['env_steps']:.0f}", flush=True)
        by_player[name] = {"alone": alone, "strategies": curves}
    return by_player


def plot(results: dict[str, Any]) -> None:
    """Draw success against environment steps, a row per world and a panel per player."""
    # Imported here, because the environment with TextWorld has no need of it.
    from matplotlib.figure import Figure

    rows = [(world, player) for world in results for player in results[world] if player != "instances"]
    figure = Figure(figsize=(9, 2.6 * len(rows) / 2), layout="constrained")
    for number, (world, player) in enumerate(rows, start=1):
        axes = figure.add_subplot(len(rows) // 2, 2, number)
        result = results[world][player]
        for strategy, curve in result["strategies"].items():
            steps, success = ([row[key] for row in curve] for key in ("env_steps", "success"))
            axes.plot(steps, success, marker="o", ms=3, label=strategy)
        axes.axhline(result["alone"]["success"], color="0.4", linestyle="--", linewidth=1, label="player alone")
        axes.set(title=f"{world}, {player}", ylim=(-0.05, 1.05), xlabel="environment steps", ylabel="success")
        axes.title.set_fontsize(9)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    figure.savefig(FIGURE, dpi=110)


def main() -> None:
    """Measure worlds and write results/textworld_search.json, or draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few instances and budgets, and no file of record")
    parser.add_argument("--world", choices=WORLDS, action="append", help="only this one; all by default")
    parser.add_argument("--instances", type=int, default=12, help="games per world")
    parser.add_argument("--plot", action="store_true", help="draw what the file of record holds")
    parser.add_argument("--speed", action="store_true", help="time snapshots, and search nothing")
    args = parser.parse_args()
    if args.speed:
        measure_speed(args.quick)
        return
    record = RESULTS / f"{NAME}.json"
    recorded = json.loads(record.read_text(encoding="utf-8")) if record.exists() and not args.quick else {}
    if args.plot:
        plot(recorded["worlds"])
        return
    instances, budgets = (4, (2,)) if args.quick else (args.instances, BUDGETS)
    results = recorded.get("worlds", {})
    for name in args.world or WORLDS:
        results[name] = {"instances": instances, **measure(WORLDS[name], instances, budgets)}
        about = {"score": GUIDE, "budgets": budgets, "settings": {world: WORLDS[world] for world in results}}
        about |= {"note": recorded["note"]} if "note" in recorded else {}
        write_result(NAME, {**about, "worlds": results})


if __name__ == "__main__":
    run_timed(main)
