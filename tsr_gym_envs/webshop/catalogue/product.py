"""Products and goals: two immutable values that every part of WebShop shares."""

from typing import Any, NamedTuple

# One option group of a product, such as ("size", ("small", "large")).
OptionGroup = tuple[str, tuple[str, ...]]
# A wanted option of a goal: a (name, value) pair (synthetic goals) or a bare value (human goals).
GoalOption = tuple[str, str] | str


class Product(NamedTuple):
    """A product as the shop shows it.

    Attributes:
        row: Its number in the catalogue, which is also its number in the search index.
        asin: Its id.
        title: Its name.
        description: Free text, may be "".
        bullets: The list of features, each may be "".
        price_text: The price as shown: ``"$12.99"`` or ``"$10.0 to $18.34"``.
        prices: The listed prices in dollars: one, or the two ends of a range.
        options: Option groups in the order of the page; names and values in lower case, "/" written as " | ".
        attributes: Its attributes, such as "machine washable".
        category: One of the shop's few top categories.
        query: The query by which the product was crawled.
        product_category: Its path of categories, joined by "›".
        image: Address of its picture, "" without one.
    """

    row: int
    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    price_text: str
    prices: tuple[float, ...]
    options: tuple[OptionGroup, ...]
    attributes: tuple[str, ...]
    category: str
    query: str
    product_category: str
    image: str = ""

    def as_original(self) -> dict[str, Any]:
        """Return the product with the original's field names."""
        return {
            "asin": self.asin,
            "name": self.title,
            "Title": self.title,
            "Description": self.description,
            "BulletPoints": list(self.bullets),
            "Price": self.price_text,
            "pricing": list(self.prices),
            "options": {name: list(values) for name, values in self.options},
            "Attributes": list(self.attributes),
            "category": self.category,
            "query": self.query,
            "product_category": self.product_category,
            "MainImage": self.image,
        }


class Goal(NamedTuple):
    """A goal: the product that a shopper is asked to buy.

    Attributes:
        row: Number of the target product in the catalogue.
        asin: Its id.
        category: Its top category.
        query: Its crawl query.
        name: Its title.
        product_category: Its path of categories.
        instruction_text: The instruction, limit of the price included.
        attributes: Its required attributes.
        price_upper: Most dollars that it may cost; 1,000,000 without a limit in the instruction.
        goal_options: The options to choose: (name, value) pairs for synthetic goals, bare values for human ones.
        weight: Its share in a random draw, up to a constant factor.
    """

    row: int
    asin: str
    category: str
    query: str
    name: str
    product_category: str
    instruction_text: str
    attributes: tuple[str, ...]
    price_upper: float
    goal_options: tuple[GoalOption, ...]
    weight: float

    def as_original(self, *, human: bool) -> dict[str, Any]:
        """Return the goal with the original's field names; options of human goals are a list, others a dict."""
        fields = {key: value for key, value in self._asdict().items() if key != "row"}
        options: Any = list(self.goal_options) if human else dict(self.goal_options)  # type: ignore[arg-type]
        return {**fields, "attributes": list(self.attributes), "goal_options": options}


def document_of(product: Product) -> str:
    """Return the indexed text of a product: title, description, first bullet and options, in lower case."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options)
    first = product.bullets[0] if product.bullets else ""
    return " ".join((product.title, product.description, first, options)).lower()
