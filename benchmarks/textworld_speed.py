"""TextWorld: a snapshot with its restore beside TextWorld's own `env.copy()`, in one run, at the same moments of games.

TextWorld's environment is asked for what ours always has: admissible commands, description, inventory, score. A state
of ours is a value, so a snapshot copies nothing; the interpreter's memory is put back by the step that follows, and
what its way into the interpreter and out of it costs there is measured beside it. Processor time of one process, the
least of several rounds. Needs the extra textworld. Run: python -m benchmarks.textworld_speed [--quick]
"""

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import textworld

import tsr_gym
from benchmarks.measure import best_seconds, write_result
from tsr_gym_envs.zmachine.machine import Machine

GAMES = (("simple", 1), ("coin_collector", 105), ("treasure_hunter", 21), ("cooking", 9))
MOMENTS = 10


def theirs_at(story: Path, commands: list[str]) -> Any:
    """Return TextWorld's environment after some commands."""
    wanted = textworld.EnvInfos(
        description=True, inventory=True, score=True, won=True, lost=True, admissible_commands=True
    )
    env = textworld.start(str(story), wanted)
    env.reset()
    for command in commands:
        env.step(command)
    return env


def measure(game: str, level: int, rounds: int) -> dict[str, Any]:
    """Return what a snapshot with its restore and a copy cost in one game, in microseconds."""
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


def main() -> None:
    """Measure all games and write results/textworld_speed.json."""
    rounds = 2 if "--quick" in sys.argv[1:] else 7
    found = {game: measure(game, level, rounds) for game, level in GAMES}
    write_result(
        f"textworld_speed{'_quick' if rounds == 2 else ''}", {"textworld": textworld.__version__, "games": found}
    )


if __name__ == "__main__":
    main()
