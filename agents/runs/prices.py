"""Prices: what a useful group costs by each way to collect it, and so what follows where plain play has failed.

A group teaches if it has successes next to failures. Plain play of a new instance, as many plain episodes once more and
a search each make a group useful at a price, in sampled tokens. The last two are applied to instances that plain play
has just failed, which are harder than the average one, so their prices are conditional. Prices change while the policy
learns: the run measures them on what it collects and forgets them with a half-life of a few updates.
"""

import json
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

from tsr_gym.agents.episodes.collect import PLAY, SEARCH, SEARCHED, WIDER, Odds, Tried
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.errors import CheckpointError
from tsr_gym.files import write_atomically

FILE = "prices.json"
# What is left of a measurement after an update: half after four.
KEPT = 0.5**0.25
# Useful groups that a way without any is taken to have had: with Jeffreys' prior of a Poisson rate, "none yet" is a
# price that rises with the tokens spent in vain, and not infinity.
PRIOR = 0.5
# Share of the tokens that ways take which are not the cheapest, so that their prices stay known.
EXPLORED = 0.05
# Most of the tokens that searches take until one of them has succeeded. A search costs as much as ten groups of plain
# play in some worlds, so that a first round of them, made to learn their price, could take half of a short run.
UNPROVEN = 0.35


class Prices:
    """The prices of a run; part of a checkpoint.

    Args:
        config: Whether prices decide, and what a searched success is worth.
    """

    def __init__(self, config: SearchConfig) -> None:
        self.config = config
        self.tried = dict.fromkeys((PLAY, SEARCH, WIDER), (0.0, 0.0, 0.0))
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
        """Return the tokens that a useful group costs by a way; 0 before it was tried."""
        _, useful, tokens = self.tried[way]
        return tokens / (useful + PRIOR)

    def odds(self) -> Odds:
        """Return the chances of what follows on failed play."""
        if not self.decides:
            return SEARCHED
        play, search = self.price(PLAY), self.price(SEARCH)
        # A second round that was not tried yet is no alternative to a search.
        wider = self.price(WIDER) if self.tried[WIDER][0] else inf
        explored = {way: self._share(way, EXPLORED) for way in (SEARCH, WIDER)}
        if search <= self.config.search_worth * min(play, wider):
            searched = 1.0 if self.successes else self._share(SEARCH, UNPROVEN)
            return Odds(min(searched, 1 - explored[WIDER]), explored[WIDER])
        if wider <= play:
            return Odds(explored[SEARCH], 1 - explored[SEARCH])
        return Odds(explored[SEARCH], explored[WIDER])

    @property
    def dearer(self) -> float:
        """The expected tokens of the next group, as a multiple of the mean over the run so far; at least 1."""
        played, useful, tokens = self.tried[PLAY]
        if not (self.decides and played):
            return 1.0
        cost = tokens / played
        for way, chance in zip((SEARCH, WIDER), self.odds(), strict=True):
            groups, _, spent = self.tried[way]
            cost += (played - useful) / played * chance * spent / max(groups, PRIOR)
        return max(1.0, cost * self.groups / max(self.tokens, 1))

    def metrics(self) -> dict[str, Any]:
        """Return prices and chances as ``price_*``, ``odds_*``; empty where prices do not decide."""
        if not self.decides:
            return {}
        prices = {f"price_{way}": round(self.price(way), 1) for way in self.tried}
        return prices | {f"odds_{way}": round(share, 4) for way, share in self.odds()._asdict().items()}

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

    def _share(self, way: str, share: float) -> float:
        """Return the chance at which a way takes a share of the tokens; while its cost is unknown, one in `groups`."""
        groups, _, tokens = self.tried[way]
        if not groups:
            return 1 / self.config.groups
        played, useful, _ = self.tried[PLAY]
        failed = max(played - useful, PRIOR)
        others = sum(spent for other, (_, _, spent) in self.tried.items() if other != way)
        return min(1.0, share / (1 - share) * others * groups / (failed * max(tokens, 1)))
