"""The rules of the shop: from a state and an action to the next state, without text and without rewards."""

from tsr_gym_envs.webshop.actions import ShopAction
from tsr_gym_envs.webshop.catalogue.original_random import draw_rows, generator_of
from tsr_gym_envs.webshop.observation import page_name, page_of
from tsr_gym_envs.webshop.pages.layout import SUB_PAGES
from tsr_gym_envs.webshop.shop import Shop
from tsr_gym_envs.webshop.state import ShopState

_SUB_PAGES = {name.lower(): name for name in SUB_PAGES}


def follow(shop: Shop, state: ShopState, action: ShopAction) -> ShopState | None:
    """Return where an action leads; None where it means nothing.

    One can search from every page, and click what the page shows; capitals do not matter in arguments. A purchase is
    a step to the page "done".
    """
    if action.argument is None:
        return None
    argument = action.argument.lower()
    if action.name == "search":
        return _list_results(shop, state._replace(keywords=tuple(argument.split(" "))), 1)
    return click(shop, state, argument) if action.name == "click" else None


def click(shop: Shop, state: ShopState, name: str) -> ShopState | None:
    """Return where a click leads; None where the page shows no such thing."""
    targets = shop.layout(page_of(shop, state)).targets
    if name not in targets or name == "search":
        return None
    # Names of buttons come first, also where an option is called the same.
    if name == "buy now":
        return state._replace(page="done")
    if name == "back to search":
        return _leave(state)
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
    # A group keeps its place when another of its values is chosen.
    return state._replace(options=tuple((dict(state.options) | {target[0]: target[1]}).items()))


def _leave(state: ShopState) -> ShopState:
    """Return the search page, on which everything but the goal is forgotten."""
    return ShopState(state.goal, state.session, past=state.past, dice=state.dice, known=state.known)


def _list_results(shop: Shop, state: ShopState, number: int) -> ShopState:
    """Return a page of results for the state's query; nothing stays chosen."""
    drawn: tuple[int, ...] = ()
    dice = state.dice
    if shop.command(state.keywords) == "<r>":
        assert dice is not None
        generator = generator_of(dice)
        drawn = draw_rows(generator, shop.catalogue.num_products)
        dice = generator.getstate()
    return state._replace(page="search_results", number=number, row=-1, options=(), sub="", drawn=drawn, dice=dice)
