"""Stable-Baselines3's PPO on the grid worlds, from `gym.make` alone: an example, and a check that it learns.

FrozenLake is Gymnasium's 4x4 map without slip; Sokoban is generated rooms of 6x6 with one box, trained and tested on
rooms that differ up to symmetry. Success on test instances is reported with that of uniformly random actions on the
same ones.
Run: pip install -e '.[bench]' && python -m benchmarks.sb3_grid_worlds [--smoke]
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import tsr_gym
from benchmarks.measure import write_result

Act = Callable[[Any], int]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is learned, from how much.

    Attributes:
        env_id: Gymnasium id.
        settings: Keywords of `gym.make`.
        steps: Environment steps of training.
        ppo: Settings of PPO that are not Stable-Baselines3's own.
    """

    env_id: str
    settings: dict[str, Any]
    steps: int
    ppo: dict[str, Any]


LESSONS = {
    "frozen_lake_4x4_no_slip": Lesson(
        "tsr/FrozenLake-v0",
        {"map_name": "4x4", "is_slippery": False, "obs_type": "discrete"},
        40_000,
        {"n_steps": 128, "ent_coef": 0.02},
    ),
    "sokoban_6x6_1_box": Lesson(
        "tsr/Sokoban-v0",
        {"obs_type": "onehot", "max_actions": 20},
        600_000,
        {"n_steps": 256, "batch_size": 512, "gamma": 0.97, "ent_coef": 0.01},
    ),
}


@dataclass(frozen=True, slots=True)
class Args:
    """Learn both worlds with PPO, and write results/sb3_grid_worlds.json."""

    smoke: bool = False
    """Only show that everything runs: little training, nothing is written."""
    seeds: int = 3
    """Runs per world."""


def success(lesson: Lesson, act: Act, instances: int = 512) -> float:
    """Return the share of test instances that are solved."""
    env = gym.make(lesson.env_id, split="test", **lesson.settings)
    solved = 0
    for seed in range(instances):
        observation, info = env.reset(seed=seed)
        over = False
        while not over:
            observation, _, terminated, truncated, info = env.step(act(observation))
            over = terminated or truncated
        solved += info["success"]
    return solved / instances


def learn(lesson: Lesson, seed: int, *, smoke: bool) -> dict[str, float]:
    """Train one policy and return the success of random actions, of the new policy and of the trained one."""
    settings = {**lesson.settings, "split": "train"}
    envs = make_vec_env(lesson.env_id, n_envs=8, seed=1_000_000 * (seed + 1), env_kwargs=settings)
    model = PPO("MlpPolicy", envs, seed=seed, device="cpu", **lesson.ppo)
    instances = 32 if smoke else 512
    dice = np.random.default_rng(seed)
    random = success(lesson, lambda observation: int(dice.integers(4)), instances)

    def act(observation: Any) -> int:
        return int(model.predict(observation)[0])

    before = success(lesson, act, instances)
    model.learn(2_048 if smoke else lesson.steps)
    return {"random": random, "untrained": before, "trained": success(lesson, act, instances)}


def main() -> None:
    """Learn, print, write."""
    args = tyro.cli(Args)
    seeds = range(1 if args.smoke else args.seeds)
    results = {
        name: {
            "settings": lesson.settings,
            "steps": lesson.steps,
            "runs": [learn(lesson, seed, smoke=args.smoke) for seed in seeds],
        }
        for name, lesson in LESSONS.items()
    }
    for name, result in results.items():
        print(name, result["runs"])
    if not args.smoke:
        write_result("sb3_grid_worlds", {"tsr_gym": tsr_gym.__version__, "results": results})


if __name__ == "__main__":
    main()
