"""A world of tools: the tickets of a help desk are moved and closed. Run: python -m examples.desk ."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tsr_gym import Limits, Step, TextEnv, Tool
from tsr_gym.testing import check_snapshot, check_text_env

QUEUES = ("billing", "repairs", "sales")
TICKET, QUEUE = {"type": "integer", "enum": [1, 2]}, {"type": "string", "enum": list(QUEUES)}
# By default a call of a tool is the action that is written so: its name with its arguments in JSON.
CALLS = {f'move(ticket={ticket}, queue="{queue}")': (ticket, queue) for ticket in (1, 2) for queue in QUEUES}
CALLS |= {f"close(ticket={ticket})": (ticket, "closed") for ticket in (1, 2)}


class Desk(NamedTuple):
    """The queue that each ticket needs, and where it is."""

    wanted: tuple[str, ...]
    queues: tuple[str, ...] = ("new", "new")


class DeskEnv(TextEnv[Desk]):
    """Bring every ticket to the queue that it needs; a ticket that is closed is lost."""

    actions = tuple(CALLS)
    tools = (
        Tool("move", "Move it.", {"type": "object", "properties": {"ticket": TICKET, "queue": QUEUE}}),
        Tool("close", "Close it.", {"type": "object", "properties": {"ticket": TICKET}, "required": ["ticket"]}),
    )

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(limits=Limits(6), separator=None, render_mode=render_mode)

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> Desk:
        return Desk(tuple(QUEUES[place] for place in rng.integers(3, size=2)))

    def transition(self, state: Desk, action: str, rng: np.random.Generator) -> Step:
        if action not in CALLS:
            return Step(state, 0.0, False, {"action_is_valid": False, "invalid_reason": f"no call {action[:40]!r}"})
        ticket, queue = CALLS[action]
        after = Desk(state.wanted, (queue, state.queues[1]) if ticket == 1 else (state.queues[0], queue))
        return Step(after, float(self.is_success(after)), self.is_success(after) or queue == "closed", {})

    def observe(self, state: Desk) -> str:
        return f"the tickets need {' and '.join(state.wanted)}, and are in {' and '.join(state.queues)}"

    def is_success(self, state: Desk) -> bool:
        return state.wanted == state.queues


gym.register("my/Desk-v0", entry_point="examples.desk:DeskEnv")

if __name__ == "__main__":
    check_text_env(gym.make("my/Desk-v0"))
    check_snapshot(gym.make("my/Desk-v0"))
    print("both checks passed")
