"""Prices: what a useful group costs by plain play and by a search where plain play failed, and so what is searched.

A group teaches if it has successes next to failures. Plain play of a new instance and a search of a failed one each
make a group useful at a price, in sampled tokens. Prices change while the policy learns: the run measures them on what
it collects and forgets them with a half-life of a few updates.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsr_gym.agents.episodes.collect import PLAY, SEARCH, Tried
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.errors import CheckpointError
from tsr_gym.files import write_atomically

FILE = "prices.json"
# What is left of a measurement after an update: half after four.
KEPT = 0.5**0.25
# Useful groups that a way without any is taken to have had, as in Jeffreys' prior of a Poisson rate: "none yet" is a
# price that rises with the tokens spent in vain, and not infinity. It is forgotten like a measurement: if it stayed
# while the tokens faded, a search that never succeeded would look cheaper with every update.
PRIOR = 0.5
# Groups of plain play that cost as much as a search, until there was one.
UNTRIED = 10
# Share of the tokens that searches take where plain play is cheaper, so that their price stays known.
EXPLORED = 0.05
# Most of the tokens that searches take until one of them has succeeded. A search costs as much as ten groups of plain
# play in some worlds, so that a first round of them, made to learn their price, could take half of a short run.
UNPROVEN = 0.35
LEAST = 1e-9


class Prices:
    """The prices of a run; part of a checkpoint.

    Args:
        config: Whether prices decide.
    """

    def __init__(self, config: SearchConfig) -> None:
        self.config = config
        self.tried = dict.fromkeys((PLAY, SEARCH), (0.0, PRIOR, 0.0))
        self.successes = 0
        self.groups, self.tokens = 0, 0

    @property
    def decides(self) -> bool:
        """Whether prices decide what is searched."""
        return self.config.search_when == "cheaper"

    def keep(self, tried: Mapping[str, Tried]) -> None:
        """Add what an update tried to what is left of those before."""
        self.successes += tried.get(SEARCH, Tried()).useful
        self.groups += tried.get(PLAY, Tried()).groups
        self.tokens += sum(way.tokens for way in tried.values())
        for way, (groups, useful, tokens) in self.tried.items():
            new = tried.get(way, Tried())
            self.tried[way] = KEPT * groups + new.groups, KEPT * useful + new.useful, KEPT * tokens + new.tokens

    def price(self, way: str) -> float:
        """Return the tokens that a useful group costs by a way; 0 before any play."""
        groups, useful, tokens = self.tried[way]
        if way == SEARCH and not groups:
            groups, _, tokens = self.tried[PLAY]
            return UNTRIED * tokens / max(groups, LEAST) / PRIOR
        return tokens / max(useful, LEAST)

    def chance(self) -> float:
        """Return the chance that failed play is searched."""
        if not self.decides:
            return 1.0
        if self.price(SEARCH) > self.price(PLAY):
            return self._chance(EXPLORED)
        return 1.0 if self.successes else self._chance(UNPROVEN)

    @property
    def dearer(self) -> float:
        """The expected tokens of the next group, as a multiple of the mean over the run so far; at least 1."""
        played, _, tokens = self.tried[PLAY]
        if not (self.decides and played):
            return 1.0
        cost = tokens / played * (1 + self.chance() * self._search_cost())
        return max(1.0, cost * self.groups / max(self.tokens, 1))

    def metrics(self) -> dict[str, Any]:
        """Return ``price_play``, ``price_search`` and ``chance_search``; empty where prices do not decide."""
        if not self.decides:
            return {}
        prices = {f"price_{way}": round(self.price(way), 1) for way in self.tried}
        return prices | {"chance_search": round(self.chance(), 4)}

    def save(self, folder: Path) -> None:
        """Write the prices into a checkpoint's folder.

        Raises:
            OSError: The disk is full or not writable.
        """
        if self.decides:
            write_atomically(
                folder / FILE,
                json.dumps({"tried": self.tried, "counts": [self.successes, self.groups, self.tokens]}).encode(),
            )

    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            CheckpointError: The file is damaged.
        """
        if not self.decides:
            return
        try:
            read = json.loads((folder / FILE).read_bytes())
            for way in self.tried:
                groups, useful, tokens = map(float, read["tried"][way])
                self.tried[way] = groups, useful, tokens
            self.successes, self.groups, self.tokens = map(int, read["counts"])
        except (ValueError, LookupError, TypeError) as error:
            raise CheckpointError(f"{folder / FILE}: not the prices of a run ({error}): damaged") from error

    def _chance(self, share: float) -> float:
        """Return the chance at which searches of failed groups take a share of the tokens."""
        return min(1.0, share / (1 - share) / max(self._search_cost(), LEAST))

    def _search_cost(self) -> float:
        """Return what searching all failed groups costs, as a multiple of the tokens of plain play."""
        (played, useful, play_tokens), (searched, _, search_tokens) = self.tried[PLAY], self.tried[SEARCH]
        if not play_tokens:
            return UNTRIED
        cost = search_tokens / searched * played / play_tokens if searched else UNTRIED
        return cost * max(played - useful, 0) / played
