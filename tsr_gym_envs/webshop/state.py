"""The state of a shopping trip, and the actions that a text asks for: read as in the original, or leniently."""

from typing import Any, Literal, NamedTuple

from tsr_gym_envs.webshop.catalogue.product import Product

# Names of buttons in lower case. An option with one of these names would be ambiguous.
BUTTONS = (
    "search",
    "back to search",
    "< prev",
    "next >",
    "description",
    "features",
    "reviews",
    "attributes",
    "buy now",
)


class ShopAction(NamedTuple):
    """A name and the argument in brackets after it; the argument is None without filled brackets."""

    name: str
    argument: str | None


def parse(text: str) -> ShopAction:
    r"""Return the action that the original parses: a greedy ``(.+)\[(.+)\]`` at the start of a text.

    Only the first line counts; text after the last closing bracket is ignored.

    >>> parse("search[red shoes] now")
    ShopAction(name='search', argument='red shoes')
    >>> parse("search[a][b]")
    ShopAction(name='search[a]', argument='b')
    """
    line = text.partition("\n")[0]
    end = line.rfind("]")
    # Searched from the end, because the regular expression takes quadratic time on a text of brackets.
    start = line.rfind("[", 1, end - 1) if end > 1 else -1
    return ShopAction(text, None) if start < 0 else ShopAction(line[:start], line[start + 1 : end])


def parse_kindly(text: str) -> ShopAction:
    """Return the action in a text, ignoring case and outer blanks, with brackets allowed inside the argument.

    >>> parse_kindly(" Click [ size [us] ] ")
    ShopAction(name='click', argument='size [us]')
    """
    line = text.strip().partition("\n")[0]
    name, bracket, rest = line.partition("[")
    argument = rest.rpartition("]")[0].strip()
    return ShopAction(name.strip().lower(), argument) if bracket and argument else ShopAction(text, None)


def option_labels(product: Product, *, unique: bool) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Return a product's option groups with the (label, value) pairs of each; labels are shown and clicked.

    Args:
        product: The product.
        unique: Write ``name: value`` for a value that occurs in several groups or equals a button, so that every option
            can be chosen. In the original, such a click goes to the last group, or to the button.

    >>> from tsr_gym_envs.webshop.catalogue.product import Product
    >>> groups = (("frame", ("red", "blue")), ("lens", ("red",)))
    >>> product = Product(0, "B0", "Glasses", "", (), "$8.0", (8.0,), groups, (), "", "", "")
    >>> option_labels(product, unique=True)[0]
    ('frame', (('frame: red', 'red'), ('blue', 'blue')))
    """
    if not unique:
        return tuple((name, tuple((value, value) for value in values)) for name, values in product.options)
    seen: set[str] = set(BUTTONS)
    ambiguous: set[str] = set(BUTTONS)
    for _, values in product.options:
        ambiguous.update(seen.intersection(values))
        seen.update(values)
    return tuple(
        (name, tuple((f"{name}: {value}" if value in ambiguous else value, value) for value in values))
        for name, values in product.options
    )


PageKind = Literal["index", "search_results", "item_page", "item_sub_page", "done"]


class ShopState(NamedTuple):
    """The state of a shopping trip.

    Attributes:
        goal: Number of the goal.
        session: Key of the session, which the original shows in its addresses.
        page: Kind of the page.
        keywords: The query, split at blanks; () before the first search.
        number: Number of the page of results, from 1.
        row: Catalogue row of the open product, -1 without one.
        options: Chosen (name, value) pairs, in the order of the first choice in their groups.
        opened: Rows of the products opened since the last index page, in ascending order.
        sub: The open sub page: "Description", "Features", "Reviews", "Attributes" or "".
        drawn: Rows listed by a random query (``<r>``), () for any other: only with the original's rules.
        past: Earlier observations and actions that are shown again, oldest first; () by default.
        dice: State of the original's generator, as `random.Random.getstate` returns it; None unless the original's
            rules use it. It is not part of the state key.
        known: Latest (session, goal) pairs, because the original gives a returning session its old goal; () unless
            the original's rules use them.
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
