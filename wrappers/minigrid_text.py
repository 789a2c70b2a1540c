"""MiniGridText: MiniGrid in words, for an agent that reads: its mission, what it carries, what it sees."""

from typing import Any

import gymnasium as gym
import numpy as np

from tsr_gym.errors import ConfigError
from tsr_gym.spaces import FreeText
from tsr_gym.text_env import MAX_TEXT, no_text

# MiniGrid's numbers of objects, colours, states of doors, actions and directions.
OBJECTS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
DOORS = ("open", "closed", "locked")
ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
FACING = ("east", "south", "west", "north")
# What means nothing still takes a turn, as MiniGrid's own action for nothing does.
IDLE = ACTIONS.index("done")
_PLAIN = ("unseen", "empty", "wall", "floor")


class MiniGridText(gym.Wrapper[str, str, Any, Any], gym.utils.RecordConstructorArgs):
    """Show an environment of MiniGrid in words, and take its actions in words.

    An observation names the mission, what is carried, which way the agent looks, what is in front of it, how far it is
    to the wall ahead, and every object in its view, with how many steps it is ahead and to which side. It is made of
    MiniGrid's own partial view alone. The wrapper has no state, so a stack has the snapshots that MiniGrid has.

    Actions are ``left``, ``right``, ``forward``, ``pickup``, ``drop``, ``toggle`` and ``done``, in any case. Other
    words take a turn in which nothing is done, and ``info["action_is_valid"]`` is False.

    Args:
        env: An environment of MiniGrid with its own observations, a dictionary.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.env: gym.Env[Any, Any] = env
        space = env.observation_space
        if not (isinstance(space, gym.spaces.Dict) and {"image", "direction", "mission"} <= set(space)):
            raise ConfigError(f"wanted an environment of MiniGrid with image, direction and mission, got {space}")
        self.observation_space = FreeText(MAX_TEXT)
        self.action_space = FreeText(MAX_TEXT, words=ACTIONS, max_words=1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode."""
        seen, info = self.env.reset(seed=seed, options=options)
        return in_words(seen), {**info, "actions": ACTIONS}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one action.

        Raises:
            InvalidAction: The action is no text.
        """
        if not isinstance(action, str):
            raise no_text(action)
        word = action.strip().lower()
        is_action = word in ACTIONS
        seen, reward, terminated, truncated, info = self.env.step(ACTIONS.index(word) if is_action else IDLE)
        facts = {**info, "actions": ACTIONS, "action_is_valid": is_action}
        if not is_action:
            facts["invalid_reason"] = f"{word[:80]!r} is no action: write {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}"
        return in_words(seen), float(reward), terminated, truncated, facts


def in_words(seen: dict[str, Any]) -> str:
    """Return MiniGrid's observation in words.

    Args:
        seen: `image` `[W, H, 3]` (the agent stands in the middle of the last row and looks to the first), `direction`
            and `mission`.
    """
    view = np.asarray(seen["image"])
    width, height, _ = view.shape
    column, row = width // 2, height - 1
    carried = _named(view[column, row])
    ahead = _named(view[column, row - 1]) or OBJECTS[int(view[column, row - 1, 0])]
    wall = next((step for step in range(1, height) if view[column, row - step, 0] == OBJECTS.index("wall")), None)
    things = [
        f"{name} {_place(row - y, x - column)}"
        for y in range(height - 1, -1, -1)
        for x in range(width)
        if (x, y) != (column, row) and (name := _named(view[x, y])) is not None
    ]
    parts = [
        f"Mission: {seen['mission']}.",
        f"You carry {carried or 'nothing'}.",
        f"You look {FACING[int(seen['direction'])]}. In front of you: {'nothing' if ahead == 'empty' else ahead}.",
        "You see no wall ahead." if wall is None else f"The wall ahead is {wall} away.",
        f"You see: {'; '.join(things) if things else 'nothing else'}.",
    ]
    return "\n".join(parts)


def _named(cell: Any) -> str | None:
    """Return the name of the object in a cell of the view, None for an empty cell."""
    number, colour, state = (int(value) for value in cell)
    name = OBJECTS[number]
    if name in _PLAIN or name == "agent":
        return None
    if name == "door":
        return f"a {DOORS[state]} {COLOURS[colour]} door"
    return name if name == "lava" else f"a {COLOURS[colour]} {name}"


def _place(ahead: int, side: int) -> str:
    parts = [f"{ahead} ahead"] if ahead else []
    if side:
        parts.append(f"{abs(side)} to the {'right' if side > 0 else 'left'}")
    return " and ".join(parts)
