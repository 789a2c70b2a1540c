"""Chats: trajectories as messages, for supervised training of any model; torch-free."""

from itertools import pairwise
from typing import NamedTuple

import gymnasium as gym

from tsr_gym.agents.episodes.trajectory import harvest
from tsr_gym.agents.policies.prompts import PROMPTS
from tsr_gym.errors import ConfigError, TsrGymError
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import Tree


class Chat(NamedTuple):
    """An episode as messages.

    Attributes:
        task: Seed of the tree.
        messages: Each with its ``role`` (system, user, assistant) and ``content``; the last one is an answer.
        total_reward: Sum of the rewards.
        success: Whether it solved the task.
    """

    task: int
    messages: tuple[dict[str, str], ...]
    total_reward: float
    success: bool


def tree_chats(
    tree: Tree, *, prompt: str = "paper", instructions: str | None = None, keep: int = 1, successes: bool = True
) -> list[Chat]:
    """Return the best episodes of a tree as messages, for `tsr train --warm-start` and for other trainers.

    Args:
        tree: A grown tree.
        prompt: The words around observations, by the name of a prompt.
        instructions: The rules of the game; None for those that the environment gives with its default settings.
        keep: How many episodes, those that the search chose first.
        successes: Whether to take only those that solved their task.

    Raises:
        ConfigError: There is no such prompt, or the environment cannot be asked for its rules.
    """
    if prompt not in PROMPTS:
        raise ConfigError(f"wanted a prompt of {sorted(PROMPTS)}, got {prompt!r}")
    rules = _instructions(str(tree.about.get("env"))) if instructions is None else instructions
    words = PROMPTS[prompt](rules)
    system = [{"role": "system", "content": words.system}] if words.system else []
    chats = []
    for trajectory in harvest(tree, keep):
        if (successes and not trajectory.success) or not trajectory.turns:
            continue
        messages = list(system)
        for before, after in pairwise(tree.path(trajectory.turns[-1].node)):
            messages.append({"role": "user", "content": words.turn(tree.nodes[before])})
            messages.append({"role": "assistant", "content": _said(tree, after, think=words.think)})
        chats.append(Chat(tree.seed, tuple(messages), trajectory.total_reward, trajectory.success))
    return chats


def _said(tree: Tree, node: int, *, think: bool) -> str:
    """Return what was said as a model would say it: people play bare actions, which it writes into an answer."""
    text = str(tree.nodes[node].candidate.text)
    if tree.about.get("player") != "person" or text.startswith("<"):
        return text
    return f"{'<think></think>' if think else ''}<answer>{text}</answer>"


def _instructions(env: str) -> str:
    """Return the rules that an environment gives with its default settings."""
    try:
        made = gym.make(env)
    except (gym.error.Error, TsrGymError, TypeError) as error:
        raise ConfigError(f"{env} cannot be made to ask for its rules ({error}): give instructions='...'") from error
    base = made.unwrapped
    made.close()
    return base.instructions if isinstance(base, TextEnv) else ""
