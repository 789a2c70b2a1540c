"""What an agent's text asks for: the original's reading of it, and a forgiving one."""

from typing import NamedTuple

from tsr_gym_envs.webshop.catalogue.product import Product

# Names of buttons in lower case. An option of the same name could not be told from the button.
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
    """A name and, in brackets behind it, an argument; None where there are no brackets with something between them."""

    name: str
    argument: str | None


def parse(text: str) -> ShopAction:
    r"""Return what the original reads in a text: ``(.+)\[(.+)\]`` at its start, as greedy as can be.

    Only the first line counts, and what follows the last closing bracket does not.

    >>> parse("search[red shoes] now")
    ShopAction(name='search', argument='red shoes')
    >>> parse("search[a][b]")
    ShopAction(name='search[a]', argument='b')
    """
    line = text.partition("\n")[0]
    end = line.rfind("]")
    # Found from the end, because the regular expression would take quadratic time on a text of brackets.
    start = line.rfind("[", 1, end - 1) if end > 1 else -1
    return ShopAction(text, None) if start < 0 else ShopAction(line[:start], line[start + 1 : end])


def parse_kindly(text: str) -> ShopAction:
    """Return what a text asks for whose author minds neither blanks nor capitals nor brackets inside of brackets.

    >>> parse_kindly(" Click [ size [us] ] ")
    ShopAction(name='click', argument='size [us]')
    """
    line = text.strip().partition("\n")[0]
    name, bracket, rest = line.partition("[")
    argument = rest.rpartition("]")[0].strip()
    return ShopAction(name.strip().lower(), argument) if bracket and argument else ShopAction(text, None)


def option_labels(product: Product, *, unique: bool) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Return a product's option groups with the (label, value) pairs of each; a label is what is shown and clicked.

    Args:
        product: The product.
        unique: Write ``name: value`` for a value that stands in several groups or is called like a button, so that
            every option can be chosen. In the original, the last group takes it, or the button.

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
