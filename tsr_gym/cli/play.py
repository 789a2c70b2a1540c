"""`tsr play`: an environment in the terminal, with undo."""

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import gymnasium as gym
import tyro

from tsr_gym.errors import ConfigError
from tsr_gym.keywords import parse_settings
from tsr_gym.registration import env_id
from tsr_gym.stack import restore, snapshot
from tsr_gym.text_env import TextEnv

HELP = "actions, several joined by ||; or: undo, restart, next, hint, quit"


@dataclass(frozen=True, slots=True)
class PlayArgs:
    """Play an environment in the terminal."""

    env: Annotated[str, tyro.conf.Positional]
    """Gymnasium id, or a short name such as sokoban."""
    seed: int = 0
    """Which instance to begin with."""
    env_set: tuple[str, ...] = ()
    """Settings of the environment as KEY=VALUE, the value in JSON, such as num_boxes=2."""


def main(args: list[str]) -> int:
    """Play until the player quits or the input ends."""
    chosen = tyro.cli(PlayArgs, args=args, prog="tsr play")
    try:
        env = gym.make(env_id(chosen.env), **parse_settings(chosen.env_set))
    except gym.error.Error as error:
        raise ConfigError(f"{chosen.env}: no such environment ({error})") from error
    base = env.unwrapped
    if not isinstance(base, TextEnv):
        raise ConfigError(f"wanted an environment of text, {chosen.env} is a {type(base).__name__}")
    _play(env, base, chosen.seed)
    return 0


def _play(env: gym.Env[Any, Any], base: TextEnv[Any], seed: int) -> None:
    observation, info = env.reset(seed=seed)
    past: list[Any] = []
    total = 0.0
    print(f"{HELP}\n\n{observation}\n{_status(info, total)}")
    while True:
        print("> ", end="", flush=True)
        line = sys.stdin.readline()
        word = line.strip().lower()
        if not line or word in ("quit", "q"):
            print()
            return
        if word in ("undo", "u"):
            if not past:
                print("nothing to undo")
                continue
            snap, observation, info, total = past.pop()
            restore(env, snap)
        elif word in ("restart", "r", "next", "n"):
            seed += word.startswith("n")
            observation, info = env.reset(seed=seed)
            past, total = [], 0.0
        elif word in ("hint", "h"):
            episode = base.episode
            print(
                base.optimal_turn(episode.state, info["turns_left"], info["actions_left"])
                or "no hint for this position"
            )
            continue
        elif base.episode.terminated or base.episode.truncated:
            print("the episode is over: undo, restart, next or quit")
            continue
        else:
            past.append((snapshot(env), observation, info, total))
            observation, reward, _, _, info = env.step(line.strip())
            total += float(reward)
        print(f"\n{observation}\n{_status(info, total)}")


def _status(info: dict[str, Any], total: float) -> str:
    parts = [f"return {total:g}"]
    parts += [
        f"{info[f'{name}_left']} {name} left" for name in ("turns", "actions") if info.get(f"{name}_left") is not None
    ]
    parts += ["not understood"] if info.get("action_is_valid") is False else []
    parts += ["solved!"] if info.get("success") else []
    return ", ".join(parts)
