"""The state of a shopping trip: a handful of values."""

from typing import Any, Literal, NamedTuple

PageKind = Literal["index", "search_results", "item_page", "item_sub_page", "done"]


class ShopState(NamedTuple):
    """Where a shopper stands.

    Attributes:
        goal: Number of the goal.
        session: Key of the session, which the original shows in its addresses.
        page: Kind of the page.
        keywords: The query, split at blanks; () before the first search.
        number: Number of the page of results, from 1.
        row: Catalogue row of the open product, -1 where none is.
        options: Chosen (name, value) pairs, in the order in which their groups were first chosen in.
        opened: Rows of the products opened since the last index page, in ascending order.
        sub: Which sub page is open: "Description", "Features", "Reviews", "Attributes" or "".
        drawn: Rows listed by a random query (``<r>``), () for any other: only with the original's rules.
        past: Earlier observations and actions that are shown again, oldest first; () unless asked for.
        dice: State of the original's generator, as `random.Random.getstate` returns it; None unless the original's
            rules use it. Not part of what the rules of a goal depend on.
        known: Latest (session, goal) pairs, because the original gives a session that comes back its old goal; ()
            unless the original's rules use them.
    """

    goal: int
    session: str
    page: PageKind = "index"
    keywords: tuple[str, ...] = ()
    number: int = 1
    row: int = -1
    options: tuple[tuple[str, str], ...] = ()
    opened: tuple[int, ...] = ()
    sub: str = ""
    drawn: tuple[int, ...] = ()
    past: tuple[str, ...] = ()
    dice: tuple[Any, ...] | None = None
    known: tuple[tuple[str, int], ...] = ()
