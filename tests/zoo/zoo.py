"""What the zoo holds, and which stacks of it are looked at.

Every id alone; every wrapper around a representative of each family; 100 pairs of other ids with wrappers, drawn with
the seed 6; and 200 stacks of three wrappers, drawn with the seeds 0 to 199. In full, all pairs of ids and wrappers.
"""

from typing import NamedTuple

import ale_py
import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import parse_env_id

from tests.zoo.wrappers import MAKERS, DoesNotFit, expect_fit

gym.register_envs(ale_py)

FAMILIES = {
    "gymnasium.envs.classic_control": "classic control",
    "gymnasium.envs.box2d": "Box2D",
    "gymnasium.envs.toy_text": "toy text",
    "gymnasium.envs.mujoco": "MuJoCo",
    "gymnasium.envs.phys2d": "JAX",
    "gymnasium.envs.tabular": "JAX",
    "ale_py.env": "Atari",
}
# One or two of each family, so that actions and observations of every kind are among them.
REPRESENTATIVES = (
    "CartPole-v1",
    "Pendulum-v1",
    "LunarLander-v3",
    "BipedalWalker-v3",
    "FrozenLake-v1",
    "Blackjack-v1",
    "Hopper-v5",
    "phys2d/CartPole-v1",
    "tabular/CliffWalking-v0",
    "ALE/Pong-v5",
)
# What needs a library that no extra of Gymnasium brings.
NOT_GYMNASIUMS = ("GymV21Environment-v0", "GymV26Environment-v0")
NUM_PAIRS = 100
NUM_STACKS = 200
NUM_WRAPPERS = 3


# How long stacks of wrappers are checked, and environments of which a step or a new one takes long.
SHORTLY = {"steps": 5, "seeds": (0,), "other_processes": False}
SLOW_FAMILIES = ("Atari", "JAX")
SLOW_IDS = ("CarRacing-v3",)


class Case(NamedTuple):
    """A stack of the zoo: wrappers are named from the inside out."""

    env_id: str
    wrappers: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return its name."""
        return " + ".join((self.env_id, *self.wrappers))


def newest_ids() -> list[str]:
    """Return the newest version of every id that Gymnasium and ale-py register."""
    newest: dict[tuple[str | None, str], str] = {}
    for env_id in sorted(gym.registry, key=lambda one: parse_env_id(one)[2] or 0):
        namespace, name, _ = parse_env_id(env_id)
        if namespace != "tsr":
            newest[namespace, name] = env_id
    return sorted(newest.values())


def family(env_id: str) -> str:
    """Return which family an id belongs to."""
    entry = str(gym.registry[env_id].entry_point)
    return next((name for module, name in FAMILIES.items() if entry.startswith(module)), "other")


def is_old_atari(env_id: str) -> bool:
    """Return whether an id is an earlier name of a game that also stands under ALE/."""
    return family(env_id) == "Atari" and not env_id.startswith("ALE/")


def single_wrappers(full: bool) -> list[Case]:
    """Return environments under one wrapper: all pairs, or the representatives' and a sample of the others'."""
    others = {
        name: [Case(env_id, (one,)) for env_id in ids if env_id not in REPRESENTATIVES for one in MAKERS]
        for name, ids in members().items()
    }
    picked = [case for cases in others.values() for case in cases]
    if not full:
        rng = np.random.default_rng(6)
        share = NUM_PAIRS // len(others)
        picked = [
            cases[index]
            for cases in others.values()
            for index in sorted(rng.choice(len(cases), min(share, len(cases)), replace=False).tolist())
        ]
    return [Case(env_id, (one,)) for env_id in REPRESENTATIVES for one in MAKERS] + picked


def members() -> dict[str, list[str]]:
    """Return the ids of every family, without earlier names of the same games."""
    ids = [env_id for env_id in newest_ids() if env_id not in NOT_GYMNASIUMS and not is_old_atari(env_id)]
    return {name: [env_id for env_id in ids if family(env_id) == name] for name in FAMILIES.values()}


def random_stack(seed: int) -> Case:
    """Return a random environment of a random family under three random wrappers that fit."""
    rng = np.random.default_rng(seed)
    families = list(members().values())
    ids = families[int(rng.integers(len(families)))]
    case = Case(ids[int(rng.integers(len(ids)))])
    names = list(MAKERS)
    while len(case.wrappers) < NUM_WRAPPERS:
        longer = case._replace(wrappers=(*case.wrappers, names[int(rng.integers(len(names)))]))
        try:
            expect_fit(*longer)
        except DoesNotFit:
            continue
        case = longer
    return case
