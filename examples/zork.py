"""Zork in 40 lines: a beam search through any story file, for the turns that bring the most to read.

python -m examples.zork zork1.z5
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym

import tsr_gym  # noqa: F401  (brings the ids)
from tsr_gym.agents.policies.random_policy import RandomPolicy, legal_player
from tsr_gym.agents.strategies import beam
from tsr_gym.wrappers import ScoreWrapper, TreeSearchWrapper


class NewText(ScoreWrapper[Any]):
    """Score a turn by its points, and by what it gave to read that the turn before it did not."""

    def score(self, before: Any, action: str, after: Any, reward: float) -> float:
        return 100 * reward + len(set(after.text.split()) - set(before.text.split())) / 10


def explore(story: str | Path, turns: int = 8) -> list[tuple[str, str]]:
    """Return the commands of the best path that a beam search found in a story, each with what the story answered."""
    env = TreeSearchWrapper(NewText(gym.make("tsr/Jericho-v0", story=str(story))))
    env.reset(seed=0)
    player = legal_player(env.unwrapped)
    commands = RandomPolicy(player.actions, form="{}")
    tree = env.search(commands, partial(beam, width=3, branching=6, depth=turns))
    nodes = [tree.nodes[number] for number in tree.path(tree.chosen[0])[1:]]
    return [(str(node.candidate.text), str(node.observation)) for node in nodes if node.candidate is not None]


if __name__ == "__main__":
    for command, answer in explore(sys.argv[1]):
        print(f"> {command}\n{answer}\n")
