"""From a state to its page: what it shows, what can be clicked, and the original's address of it."""

import json

from tsr_gym_envs.webshop.pages.layout import Page, PageNode, head
from tsr_gym_envs.webshop.pages.text import MODES, join
from tsr_gym_envs.webshop.shop import PAGE_SIZE, Shop
from tsr_gym_envs.webshop.state import ShopState

BASE_URL = "http://127.0.0.1:3000"
_NAMES = ("search_results", "item_page", "item_sub_page", "done")


def page_of(shop: Shop, state: ShopState) -> Page:
    """Return what a state's page shows, but for the instruction."""
    kind = state.page
    if kind == "search_results":
        rows, number = shop.results(state), state.number
        # Before the first page, which only the original's rules reach, Python's negative indices find nothing.
        listed = rows[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]
        opened = tuple(row for row in listed if row in state.opened)
        has_next = not shop.repairs.bounded_pages or number * PAGE_SIZE < len(rows)
        return Page(kind, listed, opened, number, len(rows), has_next)
    if kind == "item_page":
        return Page(kind, row=state.row, options=state.options, marks=_marks(shop, state))
    if kind == "item_sub_page":
        return Page(kind, row=state.row, options=state.options, sub=state.sub)
    if kind == "done":
        reward = float(shop.purchase(state)["reward"])
        return Page(kind, row=state.row, options=state.options, reward=reward)
    return Page(kind)


def _marks(shop: Shop, state: ShopState) -> str | None:
    """Return where the original looks for an option between double quotes to show it as chosen: in its address.

    Without further quotes in the address that is the options alone, so that more pages are the same.
    """
    if shop.repairs.page_state:
        return None
    if '"' in state.session or any('"' in word for word in state.keywords):
        return url(shop, state)
    return json.dumps(dict(state.options)) if state.options else ""


def page_nodes(shop: Shop, state: ShopState) -> tuple[PageNode, ...]:
    """Return the visible texts of a state's page."""
    return head(state.page, shop.goal(state).instruction_text) + shop.layout(page_of(shop, state)).nodes


def page_text(shop: Shop, state: ShopState, mode: str) -> str:
    """Return a state's page as text.

    Args:
        shop: The shop.
        state: The state.
        mode: A key of `MODES`.
    """
    above = MODES[mode][0](head(state.page, shop.goal(state).instruction_text))
    return join(mode, above, shop.text(mode, page_of(shop, state)))


def clickables(shop: Shop, state: ShopState) -> tuple[str, ...]:
    """Return what can be clicked, in lower case: buttons, then products, then options.

    As in the original, the search button is among them, although it is pressed by searching.
    """
    return tuple(shop.layout(page_of(shop, state)).targets)


def url(shop: Shop, state: ShopState) -> str:
    """Return the original's address of a state's page."""
    kind, session = state.page, state.session
    if kind == "index":
        return f"{BASE_URL}/{session}"
    query = "+".join(state.keywords)
    if kind == "search_results":
        return f"{BASE_URL}/{kind}/{session}/{query}/{state.number}"
    asin, options = shop.product(state.row).asin, dict(state.options)
    if kind == "done":
        return f"{BASE_URL}/{kind}/{session}/{asin}/{options}"
    end = f"{state.sub}/{options}" if kind == "item_sub_page" else json.dumps(options)
    return f"{BASE_URL}/{kind}/{session}/{asin}/{query}/{state.number}/{end}"


def page_name(shop: Shop, state: ShopState) -> str:
    """Return which page "< Prev" and "Next >" take a state for.

    The original takes the first name that stands anywhere in its address, where a query can place it.
    """
    if shop.repairs.page_state:
        return state.page
    address = url(shop, state)
    return next((name for name in _NAMES if name in address), "")
