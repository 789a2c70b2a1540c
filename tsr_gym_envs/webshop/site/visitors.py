"""Who is in the shop: a bounded number of visitors, each known by a token that nobody can guess."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from tsr_gym.tree import Tree

MAX_VISITORS = 100
IDLE_S = 2 * 60 * 60


@dataclass(frozen=True, slots=True)
class Visit:
    """A visitor's trip.

    Attributes:
        number: Its number among the visitor's trips, from 1, so that addresses of earlier trips are told apart.
        trip: Its pages.
    """

    number: int
    trip: Tree


class Visitors:
    """Visits by token. Who has been away for long is forgotten, and where there are too many, who came least recently.

    Who has never come back, because no cookie was kept, takes no place from those who have: newcomers push out each
    other only.

    Args:
        max_visitors: Most visitors at a time, and as many newcomers.
        idle_s: Seconds after which an idle visitor is forgotten.
        clock: Gives the time in seconds.
    """

    def __init__(
        self,
        max_visitors: int = MAX_VISITORS,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_visitors = max_visitors
        self._idle_s = idle_s
        self._clock = clock
        # Least recent first.
        self._visits: OrderedDict[str, tuple[float, Visit]] = OrderedDict()
        self._newcomers: OrderedDict[str, tuple[float, Visit]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._visits) + len(self._newcomers)

    def find(self, token: str | None) -> Visit | None:
        """Return the visit of a token, None where nobody has it."""
        now = self._clock()
        for visits in (self._visits, self._newcomers):
            while visits and next(iter(visits.values()))[0] < now - self._idle_s:
                visits.popitem(last=False)
        known = self._visits.get(token or "") or self._newcomers.get(token or "")
        if token is None or known is None:
            return None
        self.keep(token, known[1])
        return known[1]

    def enter(self, visit: Visit) -> str:
        """Take in a newcomer and return the token."""
        token = secrets.token_urlsafe(32)
        self._put(self._newcomers, token, visit)
        return token

    def keep(self, token: str, visit: Visit) -> None:
        """Set the visit of a token that has come back."""
        self._newcomers.pop(token, None)
        self._put(self._visits, token, visit)

    def _put(self, visits: OrderedDict[str, tuple[float, Visit]], token: str, visit: Visit) -> None:
        visits[token] = (self._clock(), visit)
        visits.move_to_end(token)
        if len(visits) > self._max_visitors:
            visits.popitem(last=False)
