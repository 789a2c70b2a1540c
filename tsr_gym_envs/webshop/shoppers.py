"""Scripted shoppers for floors, ceilings and demonstrations: a simple rule, the oracle, and random play."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np

from tsr_gym_envs.webshop.env import WebShopEnv
from tsr_gym_envs.webshop.oracle import as_query, best_action
from tsr_gym_envs.webshop.rules import page_of


class Shopper(Protocol):
    """A shopper: one action per turn."""

    def act(self, env: WebShopEnv) -> str:
        """Return the next action in the running episode."""


class ShoppingResult(NamedTuple):
    """The result of an episode."""

    goal: int
    reward: float
    success: bool
    purchased: bool
    turns: int


class RuleShopper:
    """Search for the instruction, open the first hit, choose the options that the instruction names, buy.

    It reads only the instruction and the page, as an agent does. In each group it clicks the first value that occurs
    anywhere in the instruction, even as part of a word.

    Args:
        choose: Whether to choose options.
    """

    def __init__(self, *, choose: bool = True) -> None:
        self.choose = choose

    def act(self, env: WebShopEnv) -> str:
        """Return the next action in the running episode."""
        state, shop = env.state, env.shop
        page = page_of(shop, state)
        if state.page == "search_results":
            return f"click[{shop.product(page.rows[0]).asin.lower()}]" if page.rows else "click[back to search]"
        if state.page == "item_sub_page":
            return "click[< prev]"
        instruction = shop.goal(state).instruction_text
        if state.page != "item_page":
            return f"search[{as_query(instruction)}]"
        layout = shop.layout(page)
        # Without choosing, all groups count as decided. A group is decided by its first matching value, even if that
        # value is already chosen, so that the shopper does not click a second value of the group.
        decided = set() if self.choose else {name for name, _ in shop.product(state.row).options}
        for label, target in layout.targets.items():
            if not isinstance(target, tuple) or target[0] in decided or f"click[{label}]" not in layout.actions:
                continue
            name, value = target
            if value in instruction.lower():
                decided.add(name)
                if target not in state.options:
                    return f"click[{label}]"
        return "click[buy now]"


class FirstHitShopper(RuleShopper):
    """Search for the instruction and buy the first hit without options."""

    def __init__(self) -> None:
        super().__init__(choose=False)


class OracleShopper:
    """Follow the best plan; it reads the goal and the whole catalogue, so it is a ceiling and not a player."""

    def act(self, env: WebShopEnv) -> str:
        """Return the next action in the running episode."""
        _, turns, actions, *_ = env.episode
        limits = ((env.limits.max_turns, turns), (env.limits.max_actions, actions))
        left = min((most - used for most, used in limits if most is not None), default=None)
        return best_action(env.shop, env.state, left)


class RandomShopper:
    """Draw uniformly among the legal actions of the page.

    Args:
        rng: The source of its choices.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def act(self, env: WebShopEnv) -> str:
        """Return the next action in the running episode."""
        actions = env.legal_actions(env.state)
        return actions[self.rng.integers(len(actions))]


def play(env: WebShopEnv, shopper: Shopper, goals: Iterable[int]) -> list[ShoppingResult]:
    """Play one episode per goal to its end; return the results."""
    records = []
    for goal in goals:
        _, info = env.reset(options={"goal": goal})
        total, turns, ended = 0.0, 0, False
        while not ended:
            _, reward, terminated, truncated, info = env.step(shopper.act(env))
            total, turns, ended = total + reward, turns + 1, terminated or truncated
        records.append(ShoppingResult(goal, total, info["success"], info["purchased"], turns))
    return records
