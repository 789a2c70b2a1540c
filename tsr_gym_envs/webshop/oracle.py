"""The best purchase within reach, and the exact success of random play.

The oracle knows the goal and every product. It finds a product by its title, so its plans can be carried out; where
that query lists a product on a later page, another query might list it earlier.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from tsr_gym_envs.webshop.compact import compact_page
from tsr_gym_envs.webshop.reward import count_attributes, meets, rate_kind, total, wanted_options
from tsr_gym_envs.webshop.rules import page_name, page_of
from tsr_gym_envs.webshop.shop import NUM_RESULTS, PAGE_SIZE, Shop
from tsr_gym_envs.webshop.state import BUTTONS, ShopState, option_labels

# Catalogues up to this size are examined whole; of larger ones, the hits of the target's title and the instruction.
MAX_SCANNED = 5000
# No limit: more actions than any plan takes.
_ALWAYS = 1_000_000
# Characters that would end the argument of an action, or turn the query into a command.
_NOT_IN_QUERIES = re.compile(r"[\[\]<>|\s]+")

Options = tuple[tuple[str, str], ...]


class Purchase(NamedTuple):
    """The best purchase of a product.

    Attributes:
        reward: Its reward.
        options: The (name, value) pairs chosen at the purchase.
        clicks: The labels to click before it.
    """

    reward: float
    options: Options
    clicks: tuple[str, ...]


class PurchasePlan(NamedTuple):
    """The reward of the best purchase from a state, and a plan for it; no actions if nothing can be bought."""

    reward: float
    actions: tuple[str, ...]


class _Way(NamedTuple):
    """Actions that lead to the page of a product, and the options chosen there afterwards."""

    row: int
    actions: tuple[str, ...]
    options: Options = ()


def as_query(text: str) -> str:
    r"""Return a text as a query that every parser of actions keeps unchanged.

    >>> as_query("Mug [blue],\n <r> 12 oz")
    'Mug blue , r 12 oz'
    """
    return _NOT_IN_QUERIES.sub(" ", text).strip()


def best_purchase(shop: Shop, goal: int, row: int, options: Options = (), max_clicks: int | None = None) -> Purchase:
    """Return the best purchase of the open product.

    Args:
        shop: The shop.
        goal: Number of the goal.
        row: Catalogue row of the product.
        options: The options chosen so far; they can be replaced, not removed.
        max_clicks: Most options that can still be clicked; None for any number.
    """
    num_met, whole, r_type = _terms(shop, goal, row)
    met, clicked = _best_choice(shop, goal, row, options, _ALWAYS if max_clicks is None else max_clicks)
    choices = dict(options) | dict(pair for _, pair in clicked)
    return Purchase(total(num_met + met, whole, r_type), tuple(choices.items()), tuple(label for label, _ in clicked))


@lru_cache(maxsize=1 << 14)
def _terms(shop: Shop, goal: int, row: int) -> tuple[int, int, float]:
    """Return the number of wishes that a product meets with any options, all wishes, and the factor for its kind."""
    wish, product = shop.goals[goal], shop.product(row).as_original()
    rating = rate_kind(wish, product, shop.noun_fn, symmetric=shop.repairs.symmetric_titles)
    affordable = shop.goals.price(row) <= wish["price_upper"]
    whole = len(wish["attributes"]) + len(wish["goal_options"]) + 1
    return count_attributes(wish["attributes"], product) + affordable, whole, rating.r_type


_Click = tuple[str, tuple[str, str]]


def _best_choice(shop: Shop, goal: int, row: int, options: Options, max_clicks: int) -> tuple[int, tuple[_Click, ...]]:
    """Return the number of wanted options that can be met, and the fewest clicks for it."""
    wanted = wanted_options(shop.goals[goal])
    if not wanted:
        return 0, ()
    product = shop.product(row)
    offered = [value for _, values in product.options for value in values]

    def met(name: str, value: str) -> int:
        return sum(1 << i for i, wish in enumerate(wanted) if meets(wish, name, value, offered, shop.repairs))

    choices = dict(options)
    # Dynamic programming over the groups: the fewest clicks for every set of met wishes, a set as the bits of a number.
    # One value can meet several wishes, and several groups the same wish, so a greedy choice by group can be wrong.
    best: dict[int, tuple[_Click, ...]] = {0: ()}
    for name, values in _clickable(shop, row).items():
        kept = met(name, choices[name]) if name in choices else 0
        moves: dict[int, tuple[_Click, ...]] = {kept: ()}
        for label, value in values:
            moves.setdefault(met(name, value), ((label, (name, value)),))
        grown: dict[int, tuple[_Click, ...]] = {}
        for before, clicks in best.items():
            for more, click in moves.items():
                after, path = before | more, clicks + click
                if len(path) <= max_clicks and (after not in grown or len(path) < len(grown[after])):
                    grown[after] = path
        best = grown
    most = max(best, key=lambda wishes: (wishes.bit_count(), -len(best[wishes])))
    return most.bit_count(), best[most]


@lru_cache(maxsize=4096)
def _clickable(shop: Shop, row: int) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the (label, value) pairs that can be clicked in each of a product's option groups."""
    groups = option_labels(shop.product(row), unique=shop.repairs.symmetric_options)
    # A click on a label that stands in two groups chooses it in the last group.
    owners = {label: name for name, pairs in groups for label, _ in pairs}
    return {
        name: tuple(pair for pair in pairs if owners[pair[0]] == name and _can_be_clicked(shop, pair[0]))
        for name, pairs in groups
    }


def _can_be_clicked(shop: Shop, label: str) -> bool:
    return label not in BUTTONS and shop.parse(f"click[{label}]") == ("click", label)


def best_plan(shop: Shop, state: ShopState, actions_left: int | None) -> PurchasePlan:
    """Return the best purchase that can be reached from a state, with a plan.

    A plan opens one product, chooses options and buys: the product that is open, one of the results at hand, or any
    product of the catalogue (see `MAX_SCANNED`) after a search for its title. An episode that has ended with a purchase
    keeps its reward.

    Args:
        shop: The shop.
        state: The current state.
        actions_left: Actions that are left; None for any number.
    """
    if state.page == "done":
        return PurchasePlan(float(shop.purchase(state)["reward"]), ())
    left = _ALWAYS if actions_left is None else actions_left
    best = PurchasePlan(0.0, ())
    for way in _ways_at_hand(shop, state):
        best = _better(best, _finish(shop, state.goal, way, left))
    # Searching, opening and buying takes three actions.
    return best if left < 3 else _best_by_search(shop, state.goal, left, best)


def _better(first: PurchasePlan, second: PurchasePlan) -> PurchasePlan:
    """Return the plan with the higher reward, of equal ones the shorter; a plan without actions counts as none."""
    return max(first, second, key=lambda plan: (plan.reward, bool(plan.actions), -len(plan.actions)))


def _finish(shop: Shop, goal: int, way: _Way, left: int) -> PurchasePlan:
    """Return the plan that takes a way to a product and buys it."""
    max_clicks = left - len(way.actions) - 1
    if max_clicks < 0:
        return PurchasePlan(0.0, ())
    bought = best_purchase(shop, goal, way.row, way.options, max_clicks)
    return PurchasePlan(
        bought.reward, (*way.actions, *(f"click[{label}]" for label in bought.clicks), "click[buy now]")
    )


def _ways_at_hand(shop: Shop, state: ShopState) -> Iterator[_Way]:
    """Yield the ways to the open product and to those on the page.

    Other ways are unnecessary: going back to results or to their next page takes at least as many actions as a search.
    """
    if state.page == "search_results":
        for row in page_of(shop, state).rows:
            yield _Way(row, (_opening(shop, row),))
    elif state.page == "item_page":
        yield _Way(state.row, (), state.options)
    # With the original's rules "< Prev" can lead elsewhere, because a query can make the page look like another one.
    elif state.page == "item_sub_page" and page_name(shop, state) == state.page:
        yield _Way(state.row, ("click[< prev]",), state.options)


def _opening(shop: Shop, row: int) -> str:
    return f"click[{shop.product(row).asin.lower()}]"


def _best_by_search(shop: Shop, goal: int, left: int, best: PurchasePlan) -> PurchasePlan:
    """Return the better of a plan and the best plan that begins with a search."""
    max_clicks = left - 3

    def improved(best: PurchasePlan, row: int) -> PurchasePlan:
        way = _way_by_search(shop, row)
        return best if way is None else _better(best, _finish(shop, goal, way, left))

    # The target product usually reaches the ceiling; only otherwise are all products compared, highest bound first.
    best = improved(best, shop.goals.goal(goal).row)
    if best.reward >= _ceiling(shop, goal, max_clicks):
        return best
    for bound, row in _bounds(shop, goal):
        if bound <= best.reward:
            break
        if best_purchase(shop, goal, row, (), max_clicks).reward > best.reward:
            best = improved(best, row)
    return best


@lru_cache(maxsize=4096)
def _way_by_search(shop: Shop, row: int) -> _Way | None:
    """Return the way to a product by a search for its title or for its whole indexed text."""
    product = shop.product(row)
    values = (value for _, values in product.options for value in values)
    indexed = " ".join((product.title, product.description, *product.bullets[:1], *values))
    queries = (as_query(product.title), as_query(indexed))
    ways = []
    for query in queries:
        rows = shop.engine.rows(query.lower(), NUM_RESULTS) if query else ()
        if row in rows:
            turns = ("click[next >]",) * (rows.index(row) // PAGE_SIZE)
            ways.append(_Way(row, (f"search[{query}]", *turns, _opening(shop, row))))
            if not turns:
                break
    return min(ways, key=lambda way: len(way.actions), default=None)


def _ceiling(shop: Shop, goal: int, max_clicks: int) -> float:
    """Return an upper bound on the reward of any product with a number of clicks on options."""
    wish = shop.goals[goal]
    wanted = wanted_options(wish)
    # A click meets at most one wish if wishes belong to groups; otherwise one click may meet them all.
    one_by_one = shop.repairs.symmetric_options and not any(isinstance(want, str) for want in wanted)
    met = min(max_clicks, len(wanted)) if one_by_one or not max_clicks else len(wanted)
    num_others = len(wish["attributes"]) + 1
    return total(num_others + met, num_others + len(wanted), 1.0)


@lru_cache(maxsize=64)
def _bounds(shop: Shop, goal: int) -> tuple[tuple[float, int], ...]:
    """Return, highest first, each product's reward if all wanted options were met, with its row."""
    rows: Iterable[int] = range(len(shop.catalogue))
    if len(shop.catalogue) > MAX_SCANNED:
        wish = shop.goals.goal(goal)
        texts = (wish.name, wish.instruction_text)
        rows = sorted({row for text in texts for row in shop.engine.rows(as_query(text).lower(), NUM_RESULTS)})
    num_wanted = len(shop.goals[goal]["goal_options"])
    bounds = []
    for row in rows:
        num_met, whole, r_type = _terms(shop, goal, row)
        bounds.append((total(num_met + num_wanted, whole, r_type), row))
    return tuple(sorted(bounds, key=lambda pair: (-pair[0], pair[1])))


def best_reachable(shop: Shop, state: ShopState, actions_left: int | None) -> float:
    """Return the highest reward that can be reached from a state; see `best_plan`."""
    return best_plan(shop, state, actions_left).reward


def best_action(shop: Shop, state: ShopState, actions_left: int | None) -> str:
    """Return the first action of a best plan.

    If nothing can be bought in time, it is the first action of a plan without a limit; without any plan, a search.
    """
    for left in (actions_left, None):
        plan = best_plan(shop, state, left)
        if plan.actions:
            return plan.actions[0]
    return f"search[{as_query(shop.goal(state).instruction_text)}]"


class Player(NamedTuple):
    """A player that draws uniformly.

    Attributes:
        shop: The shop.
        legal: The legal actions of a state.
        after: The state after an action, None for an invalid one.
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
        player: The player.
        start: The start state.
        num_actions: Actions of an episode, one per turn.
    """
    classes = _Classes(player)
    values: dict[tuple[Hashable, int], float] = {}

    def value(key: Hashable, left: int) -> float:
        if (key, left) not in values:
            moves = classes.moves(key)
            ends = (float(end) if isinstance(end, bool) else value(end, left - 1) if left > 1 else 0.0 for end in moves)
            values[key, left] = sum(ends) / max(len(moves), 1)
        return values[key, left]

    return value(classes.of(start), num_actions)


class _Classes:
    """Classes of states with equal futures, each with a representative state.

    Enumerating states is impossible: options multiply them. States are equal if their futures cannot differ: values of
    an option that meet the same wishes, and products that no options make right, if they offer equally many clicks.
    """

    def __init__(self, player: Player) -> None:
        self._player = player
        self._states: dict[Hashable, ShopState] = {}
        self._moves: dict[Hashable, list[Hashable]] = {}
        self._offers: dict[int, int] = {}

    def of(self, state: ShopState) -> Hashable:
        """Return the class of a state."""
        key: Hashable = (state.page, state.keywords, state.number, self._detail(state) if state.row >= 0 else None)
        self._states.setdefault(key, state)
        return key

    def moves(self, key: Hashable) -> list[Hashable]:
        """Return the outcome of each legal action: a class, or whether a purchase succeeded."""
        if key not in self._moves:
            state = self._states[key]
            ends = (self._player.after(state, action) for action in self._player.legal(state))
            self._moves[key] = [self._end(state if end is None else end) for end in ends]
        return self._moves[key]

    def _end(self, state: ShopState) -> Hashable:
        is_done = state.page == "done"
        return bool(self._player.shop.purchase(state)["success"]) if is_done else self.of(state)

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
        """Return the wishes that the chosen options meet, by group; useless options count on compact pages only."""
        shop = self._player.shop
        wanted = wanted_options(shop.goals[state.goal])
        offered = [value for _, values in shop.product(state.row).options for value in values]
        met = {
            (name, tuple(meets(wish, name, value, offered, shop.repairs) for wish in wanted))
            for name, value in state.options
        }
        return frozenset(pair for pair in met if self._player.is_compact or any(pair[1]))
