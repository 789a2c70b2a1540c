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
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Budget, Candidate, Node, Tree
from tsr_gym_envs.webshop.env import WebShopEnv
from tsr_gym_envs.webshop.shop import Shop
from tsr_gym_envs.webshop.state import ShopState

# A page takes about ten kilobytes; a search for a product needs far fewer pages.
MAX_PAGES = 300


class TripTooLong(TsrGymError):
    """A trip has the maximal number of pages."""


class Trips:
    """Begins trips and takes their steps, all in one environment, which is restored to the page of each step.

    Args:
        env: A stack around a `WebShopEnv` whose turns are single actions, such as ``gym.make("tsr/WebShop-v0")``.
        goal: Number of every trip's goal; None draws goals.
        seed: Seed of the order of goals; None draws it.
        out: Folder for a file of each ended trip; None writes none.
        max_pages: Most pages of a trip.

    Raises:
        ConfigError: The goal is unknown, or a turn has several actions.
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
        # Servers with equal seeds can write into one folder, because the names of their files differ.
        self._mark = secrets.token_hex(4)
        # A wrong goal or an unwritable folder is reported now, before the first visitor.
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
        """Return the state of the shop on a page of a trip.

        Raises:
            IndexError: The page is unknown.
        """
        self._stand(trip, page)
        return self._base.state

    def step(self, trip: Tree, page: int, action: str) -> int | None:
        """Act on a page; return the number of the next page, None for an invalid action.

        A repeated action on a page leads to the same page. An ended trip does not change, and every action leads to its
        end.

        Raises:
            IndexError: The page is unknown.
            TripTooLong: The trip has the maximal number of pages.
            OSError: The trip has ended and cannot be written.
        """
        before = trip.node(page)
        if (end := end_of(trip)) is not None:
            self._keep(trip, end)
            return end
        # A click that was followed before, such as after going back, must not add a second node for the same action.
        for child in trip.children(page):
            if trip.nodes[child].candidate.text == action:
                return child
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
        """Return the file of an ended trip, None without a folder."""
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
    """Return the page on which a trip has ended, None for a running trip."""
    return next((page for page, node in enumerate(trip.nodes) if node.done), None)


def as_played(trip: Tree, end: int) -> Tree:
    """Return a trip whose played episode is the path to its end.

    Pages that a shopper visited and left by going back stay in the tree, outside the episode.
    """
    played = set(trip.path(end))
    episode = Tree(seed=trip.seed, score_of=trip.score_of, about=trip.about)
    for page, node in enumerate(trip.nodes):
        episode.add(node, played=page in played)
    episode.charge(trip.spent)
    return episode


MAX_VISITORS = 100
IDLE_S = 2 * 60 * 60


@dataclass(frozen=True, slots=True)
class Visit:
    """A visitor's trip.

    Attributes:
        number: Its number among the visitor's trips, from 1, which makes the addresses of trips differ.
        trip: Its pages.
    """

    number: int
    trip: Tree


class Visitors:
    """Visits by token; idle visits are dropped, and beyond the limit the least recent one.

    Clients without cookies never return, so newcomers have separate places: they replace only other newcomers.

    Args:
        max_visitors: Most visitors at a time, and as many newcomers.
        idle_s: Seconds after which an idle visit is dropped.
        clock: A function that returns the time in seconds.
    """

    def __init__(
        self, max_visitors: int = MAX_VISITORS, idle_s: float = IDLE_S, clock: Callable[[], float] = time.monotonic
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
        """Return the visit of a token, None for an unknown token."""
        now = self._clock()
        for visits in (self._visits, self._newcomers):
            while visits and next(iter(visits.values()))[0] < now - self._idle_s:
                visits.popitem(last=False)
        # A newcomer that returns has kept its cookie, and moves to the places of returning visitors.
        entry = self._visits.get(token or "") or self._newcomers.get(token or "")
        if token is None or entry is None:
            return None
        self.keep(token, entry[1])
        return entry[1]

    def enter(self, visit: Visit) -> str:
        """Add a newcomer and return the token."""
        token = secrets.token_urlsafe(32)
        self._put(self._newcomers, token, visit)
        return token

    def keep(self, token: str, visit: Visit) -> None:
        """Set the visit of a returning token."""
        self._newcomers.pop(token, None)
        self._put(self._visits, token, visit)

    def _put(self, visits: OrderedDict[str, tuple[float, Visit]], token: str, visit: Visit) -> None:
        visits[token] = (self._clock(), visit)
        visits.move_to_end(token)
        if len(visits) > self._max_visitors:
            visits.popitem(last=False)
