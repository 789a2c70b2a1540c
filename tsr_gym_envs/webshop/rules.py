"""The rules of the shop: the page of a state, and the next state after an action, without rewards."""

import json

from tsr_gym_envs.webshop.catalogue.original_random import draw_rows, generator_of
from tsr_gym_envs.webshop.pages import MODES, SUB_PAGES, Page, PageNode, head, join
from tsr_gym_envs.webshop.shop import PAGE_SIZE, Shop
from tsr_gym_envs.webshop.state import ShopAction, ShopState

BASE_URL = "http://127.0.0.1:3000"
_NAMES = ("search_results", "item_page", "item_sub_page", "done")


def page_of(shop: Shop, state: ShopState) -> Page:
    """Return the contents of a state's page, except for the instruction."""
    name = state.page
    if name == "search_results":
        rows, number = shop.results(state), state.number
        # Page 0 and below, which only the original's rules reach, are empty: the slice has negative bounds.
        listed = rows[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]
        opened = tuple(row for row in listed if row in state.opened)
        has_next = not shop.repairs.bounded_pages or number * PAGE_SIZE < len(rows)
        return Page(name, listed, opened, number, len(rows), has_next)
    if name == "item_page":
        return Page(name, row=state.row, options=state.options, marks=_marks(shop, state))
    if name == "item_sub_page":
        return Page(name, row=state.row, options=state.options, sub=state.sub)
    if name == "done":
        reward = float(shop.purchase(state)["reward"])
        return Page(name, row=state.row, options=state.options, reward=reward)
    return Page(name)


def _marks(shop: Shop, state: ShopState) -> str | None:
    """Return the text in which the original looks for a quoted option to mark it as chosen: its address.

    If only the options can contain quotes, they replace the address, so that more pages are equal and cached.
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
    """Return the clickable names, in lower case: buttons, then products, then options.

    As in the original, they include the search button, although it is pressed by searching.
    """
    return tuple(shop.layout(page_of(shop, state)).targets)


def url(shop: Shop, state: ShopState) -> str:
    """Return the original's address of a state's page."""
    name, session = state.page, state.session
    if name == "index":
        return f"{BASE_URL}/{session}"
    query = "+".join(state.keywords)
    if name == "search_results":
        return f"{BASE_URL}/{name}/{session}/{query}/{state.number}"
    asin, options = shop.product(state.row).asin, dict(state.options)
    if name == "done":
        return f"{BASE_URL}/{name}/{session}/{asin}/{options}"
    end = f"{state.sub}/{options}" if name == "item_sub_page" else json.dumps(options)
    return f"{BASE_URL}/{name}/{session}/{asin}/{query}/{state.number}/{end}"


def page_name(shop: Shop, state: ShopState) -> str:
    """Return the page name by which "< Prev" and "Next >" decide.

    The original takes the first name that occurs anywhere in its address, and a query can place one there.
    """
    if shop.repairs.page_state:
        return state.page
    address = url(shop, state)
    return next((name for name in _NAMES if name in address), "")


_SUB_PAGES = {name.lower(): name for name in SUB_PAGES}


def follow(shop: Shop, state: ShopState, action: ShopAction) -> ShopState | None:
    """Return the state after an action; None for an invalid action.

    Searches are valid on every page, clicks on the names that the page shows, in any case. A purchase leads to the page
    "done".
    """
    if action.argument is None:
        return None
    argument = action.argument.lower()
    if action.name == "search":
        return _list_results(shop, state._replace(keywords=tuple(argument.split(" "))), 1)
    return click(shop, state, argument) if action.name == "click" else None


def click(shop: Shop, state: ShopState, name: str) -> ShopState | None:
    """Return the state after a click; None if the page has no such name."""
    targets = shop.layout(page_of(shop, state)).targets
    if name not in targets or name == "search":
        return None
    # A button takes precedence over an option with the same name, as in the original.
    if name == "buy now":
        return state._replace(page="done")
    if name == "back to search":
        return ShopState(state.goal, state.session, past=state.past, dice=state.dice, known=state.known)
    if name in ("< prev", "next >"):
        where = page_name(shop, state)
        if where == "search_results":
            return _list_results(shop, state, state.number + (1 if name == "next >" else -1))
        if name == "< prev":
            return (
                state._replace(page="item_page", sub="")
                if where == "item_sub_page"
                else _list_results(shop, state, state.number)
            )
    if name in _SUB_PAGES:
        return state._replace(page="item_sub_page", sub=_SUB_PAGES[name])
    target = targets[name]
    if isinstance(target, int):
        opened = tuple(sorted({*state.opened, target}))
        return state._replace(page="item_page", row=target, opened=opened)
    assert target is not None
    # A dict keeps the place of a group when another of its values is chosen.
    return state._replace(options=tuple((dict(state.options) | {target[0]: target[1]}).items()))


def _list_results(shop: Shop, state: ShopState, number: int) -> ShopState:
    """Return a page of results for the state's query, without chosen options."""
    # Only the original's command <r> draws products. Its generator is part of the state, so that a restored state draws
    # the same ones.
    drawn: tuple[int, ...] = ()
    dice = state.dice
    if shop.command(state.keywords) == "<r>":
        assert dice is not None
        generator = generator_of(dice)
        drawn = draw_rows(generator, shop.catalogue.num_products)
        dice = generator.getstate()
    return state._replace(page="search_results", number=number, row=-1, options=(), sub="", drawn=drawn, dice=dice)
