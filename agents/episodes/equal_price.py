"""Matched: plain play at the price of a search, without which a comparison of the two says little."""

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Literal

from tsr_gym.agents.strategies.naive import naive
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Strategy, Tree, Wishes

Price = Literal["model_calls", "sampled_tokens", "prompt_tokens", "env_steps", "restores", "seconds"]


def matched(searched: Sequence[Tree], played: Sequence[Tree], *, by: Price = "sampled_tokens") -> Strategy:
    """Return the naive strategy that spends, on average, as much on a task as some searches did.

    The number of rollouts that would spend the same is seldom whole: each tree gets the whole part, and one more with
    the probability of the rest, which its seed decides.

    Args:
        searched: Trees of the search.
        played: Trees of `naive`, which tell the price of an episode.
        by: The count that is to be equal.

    Raises:
        ValueError: A rollout has no price by that count, or there is not a single one.
    """
    price_of = attrgetter(by)
    episodes = sum(len(tree.leaves()) for tree in played)
    price = sum(price_of(tree.spent) for tree in played) / max(episodes, 1)
    if not price or not searched:
        raise ValueError(
            f"wanted searches, and rollouts that spent {by}, got {len(searched)} trees at a price of {price}"
        )
    rollouts = sum(price_of(tree.spent) for tree in searched) / len(searched) / price
    return partial(_play, rollouts=rollouts)


def _play(tree: Tree, *, rollouts: float) -> Wishes:
    whole, rest = divmod(rollouts, 1)
    one_more = derive_seed(tree.seed, "matched") < rest * 2**63
    return naive(tree, rollouts=max(1, int(whole) + one_more))
