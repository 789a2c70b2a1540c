"""How well the teachers of small models play: those that know only what an agent was shown, and the poor players.

In the shop and in retrieval QA, in the compact form in which small models play, on instances of every split, beside the
exact bars of the same instances. Words are counted over whole episodes, prompts and answers together.
Run: python -m benchmarks.teachers
"""

from typing import Any

import gymnasium as gym
import numpy as np

import tsr_gym  # noqa: F401 (registers the environments)
from benchmarks.measure import write_result
from tsr_gym.teaching import Player, Teaching

NUM_INSTANCES = 400
WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
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
    found = {who: measure_player(env, teaching, turn) for who, turn in players.items()}
    return {**found, "random": random, "optimal": optimal, "words known": len(teaching.words or ())}


def measure_player(env: Any, teaching: Teaching, turn: Player) -> dict[str, float]:
    """Return how a player does on the first instances."""
    rng = np.random.default_rng(0)
    accepted, solved, turns, words = 0, 0, 0, []
    for seed in range(NUM_INSTANCES):
        texts = [env.reset(seed=seed)[0]]
        while not (env.episode.terminated or env.episode.truncated):
            said = turn(env, rng)
            texts += [said, env.step(said)[0]]
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


if __name__ == "__main__":
    results = {
        world: {split: measure_split(name, settings, split) for split in ("train", "valid", "test")}
        for world, (name, settings) in WORLDS.items()
    }
    write_result("teachers", {"instances": NUM_INSTANCES, **results})
