"""Shopping trips of people, played in a real environment and stored as trees like agents' episodes; visitors by token.

Invariant: pages are only ever added to a trip, so that page number n stays the same page: a shopper who goes back and
clicks continues from there.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from tsr_gym import ConfigError, TsrGymError, restore, snapshot
from tsr_gym.budget import Budget
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Candidate, Node, Tree
from tsr_gym_envs.webshop.env import WebShopEnv
from tsr_gym_envs.webshop.shop import Shop
from tsr_gym_envs.webshop.state import ShopState

# A page takes some ten kilobytes; nobody who looks for a product opens as many.
MAX_PAGES = 300


class TripTooLong(TsrGymError):
    """A trip has as many pages as it may have."""


class Trips:
    """Begins trips and takes their steps, all in one environment, which is put where each step is taken.

    Args:
        env: A stack around a `WebShopEnv` whose turns are single actions, such as ``gym.make("tsr/WebShop-v0")``.
        goal: Number of every trip's goal; None draws goals.
        seed: Trips of equal seeds have equal goals in the same order; None begins anywhere.
        out: Folder for a file of each trip that has ended; None keeps none.
        max_pages: Most pages of a trip.

    Raises:
        ConfigError: There is no such goal, or several actions make up a turn.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        goal: int | None = None,
        seed: int | None = None,
        out: Path | None = None,
        max_pages: int = MAX_PAGES,
    ) -> None:
        base = env.unwrapped
        if not isinstance(base, WebShopEnv) or base.separator is not None:
            raise ConfigError(f"wanted a WebShop in which a turn is one action, got {env}: use max_actions_per_turn=1")
        self._env, self._base = env, base
        self._reset_options = None if goal is None else {"goal": goal}
        self._seed = secrets.randbits(62) if seed is None else seed
        self._out = out
        self._max_pages = max_pages
        self._begun = 0
        # Names of files differ between servers that write into one folder, also where their seeds are equal.
        self._mark = secrets.token_hex(4)
        # What cannot be begun, or not be written, is told before anybody shops.
        env.reset(seed=self._seed, options=self._reset_options)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)

    @property
    def shop(self) -> Shop:
        """The shop."""
        return self._base.shop

    def begin(self) -> Tree:
        """Return a new trip, whose page 0 is the search page."""
        seed = derive_seed(self._seed, "trip", self._begun)
        self._begun += 1
        observation, info = self._env.reset(seed=seed, options=self._reset_options)
        spec = self._env.spec
        about = {"env": None if spec is None else spec.id, "rules": repr(self._base.rules), "player": "person"}
        trip = Tree(seed=seed, about=about)
        snap, key = snapshot(self._env), self._base.state_key(self._base.state)
        trip.add(Node(None, 0, Candidate(""), observation, 0.0, 0.0, False, False, dict(info), snap, key))
        return trip

    def state(self, trip: Tree, page: int) -> ShopState:
        """Return what the shop shows on a page of a trip.

        Raises:
            IndexError: There is no such page.
        """
        self._stand(trip, page)
        return self._base.state

    def step(self, trip: Tree, page: int, action: str) -> int | None:
        """Act on a page, and return the page that this leads to; None where the action means nothing there.

        Whoever acts twice alike on a page comes to the same page. A trip that has ended stays as it is, and every
        action leads to its end.

        Raises:
            IndexError: There is no such page.
            TripTooLong: The trip has as many pages as it may have.
            OSError: The trip has ended and cannot be written.
        """
        before = trip.node(page)
        if (end := end_of(trip)) is not None:
            self._keep(trip, end)
            return end
        for known in trip.children(page):
            if trip.nodes[known].candidate.text == action:
                return known
        if len(trip.nodes) >= self._max_pages:
            raise TripTooLong(f"a trip has at most {self._max_pages} pages")
        self._stand(trip, page)
        observation, reward, terminated, truncated, info = self._env.step(action)
        trip.charge(Budget(env_steps=1, restores=1))
        if not info["action_is_valid"]:
            return None
        candidate, gained, depth = Candidate(action), float(reward), before.depth + 1
        snap, key = snapshot(self._env), self._base.state_key(self._base.state)
        after = trip.add(
            Node(page, depth, candidate, observation, gained, gained, terminated, truncated, info, snap, key)
        )
        if terminated or truncated:
            self._keep(trip, after)
        return after

    def file_of(self, trip: Tree) -> Path | None:
        """Return where a trip that has ended is kept, None where none is."""
        if self._out is None:
            return None
        return self._out / f"goal_{self.state(trip, 0).goal}_{trip.seed:016x}_{self._mark}.jsonl"

    def _stand(self, trip: Tree, page: int) -> None:
        snap = trip.node(page).snapshot
        assert snap is not None
        restore(self._env, snap)

    def _keep(self, trip: Tree, end: int) -> None:
        file = self.file_of(trip)
        if file is not None and not file.exists():
            as_played(trip, end).save(file)


def end_of(trip: Tree) -> int | None:
    """Return the page on which a trip has ended, None where it goes on."""
    return next((page for page, node in enumerate(trip.nodes) if node.done), None)


def as_played(trip: Tree, end: int) -> Tree:
    """Return a trip with the pages on the way to its end as the episode that was played.

    The pages that a shopper looked at, went back from and left are in the tree as well, but not in the episode.
    """
    played = set(trip.path(end))
    told = Tree(seed=trip.seed, score_of=trip.score_of, about=trip.about)
    for page, node in enumerate(trip.nodes):
        told.add(node, played=page in played)
    told.charge(trip.spent)
    return told


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
