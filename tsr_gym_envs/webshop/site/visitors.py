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

    Args:
        max_visitors: Most visitors at a time.
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

    def __len__(self) -> int:
        return len(self._visits)

    def find(self, token: str | None) -> Visit | None:
        """Return the visit of a token, None where nobody has it."""
        now = self._clock()
        while self._visits and next(iter(self._visits.values()))[0] < now - self._idle_s:
            self._visits.popitem(last=False)
        if token is None or token not in self._visits:
            return None
        visit = self._visits[token][1]
        self.keep(token, visit)
        return visit

    def enter(self, visit: Visit) -> str:
        """Take in a new visitor and return the token."""
        token = secrets.token_urlsafe(32)
        self.keep(token, visit)
        if len(self._visits) > self._max_visitors:
            self._visits.popitem(last=False)
        return token

    def keep(self, token: str, visit: Visit) -> None:
        """Set the visit of a token."""
        self._visits[token] = (self._clock(), visit)
        self._visits.move_to_end(token)
