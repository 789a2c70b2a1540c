"""The success of uniformly random play in the shop, exactly.

Of the states of an episode, those count as one that cannot differ in what comes of them: values of an option that meet
the same wishes, and products that nothing can make right, where they offer equally much to click.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple

from tsr_gym_envs.webshop.compact import compact_page
from tsr_gym_envs.webshop.oracle import best_purchase
from tsr_gym_envs.webshop.reward import meets, wanted_options
from tsr_gym_envs.webshop.shop import Shop
from tsr_gym_envs.webshop.state import ShopState


class Player(NamedTuple):
    """Who draws uniformly.

    Attributes:
        shop: The shop.
        legal: The texts that a state offers.
        after: Where a text leads; None where it means nothing.
        is_compact: Whether choosing in a group hides its other values.
    """

    shop: Shop
    legal: Callable[[ShopState], tuple[str, ...]]
    after: Callable[[ShopState, str], ShopState | None]
    is_compact: bool


def random_success(player: Player, start: ShopState, num_actions: int) -> float:
    """Return the probability that uniformly drawn actions end in a purchase that meets every wish.

    ``V_n(s) = mean_a V_{n-1}(s')``, where a purchase is worth 1 or 0 and ``V_0 = 0``.

    Args:
        player: What is drawn from.
        start: Where an episode begins.
        num_actions: Actions of an episode, one a turn.
    """
    kinds = _Kinds(player)
    values: dict[tuple[Hashable, int], float] = {}

    def value(kind: Hashable, left: int) -> float:
        if (kind, left) not in values:
            moves = kinds.moves(kind)
            ends = (float(end) if isinstance(end, bool) else value(end, left - 1) if left > 1 else 0.0 for end in moves)
            values[kind, left] = sum(ends) / max(len(moves), 1)
        return values[kind, left]

    return value(kinds.kind(start), num_actions)


class _Kinds:
    """The kinds of states that an episode can come to, each with one state that stands for it."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._states: dict[Hashable, ShopState] = {}
        self._moves: dict[Hashable, list[Hashable]] = {}
        self._offers: dict[int, int] = {}

    def kind(self, state: ShopState) -> Hashable:
        """Return the kind of a state."""
        found: Hashable = (state.page, state.keywords, state.number, self._detail(state) if state.row >= 0 else None)
        self._states.setdefault(found, state)
        return found

    def moves(self, kind: Hashable) -> list[Hashable]:
        """Return where each legal action leads: a kind, or whether a purchase was right."""
        if kind not in self._moves:
            state = self._states[kind]
            ends = (self._player.after(state, action) for action in self._player.legal(state))
            self._moves[kind] = [self._end(state if end is None else end) for end in ends]
        return self._moves[kind]

    def _end(self, state: ShopState) -> Hashable:
        is_done = state.page == "done"
        return bool(self._player.shop.purchase(state)["success"]) if is_done else self.kind(state)

    def _detail(self, state: ShopState) -> Hashable:
        shop = self._player.shop
        if best_purchase(shop, state.goal, state.row).reward == 1:
            return state.row, self._met(state)
        if self._player.is_compact:
            return tuple(sorted(map(len, compact_page(shop, state).values.values()))), len(state.options)
        if state.row not in self._offers:
            item = state._replace(page="item_page", options=(), sub="")
            self._offers[state.row] = len(self._player.legal(item))
        return self._offers[state.row]

    def _met(self, state: ShopState) -> Hashable:
        """Return which wishes the chosen options meet, by group; what meets none is only chosen on a compact page."""
        shop = self._player.shop
        wanted = wanted_options(shop.goals[state.goal])
        offered = [value for _, values in shop.product(state.row).options for value in values]
        met = {
            (name, tuple(meets(wish, name, value, offered, shop.repairs) for wish in wanted))
            for name, value in state.options
        }
        return frozenset(pair for pair in met if self._player.is_compact or any(pair[1]))
