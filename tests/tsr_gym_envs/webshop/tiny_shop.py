"""A shop of a few products in memory, without files: small enough to try everything."""

from types import SimpleNamespace

from tsr_gym_envs.webshop.actions import parse, parse_kindly
from tsr_gym_envs.webshop.catalogue.product import Goal, Product
from tsr_gym_envs.webshop.repairs import repairs_of
from tsr_gym_envs.webshop.shop import Shop


def product(row, title, *, options=(), attributes=(), description="", price=10.0, query="mugs", category="Home › Mugs"):
    return Product(
        row=row,
        asin=f"B{row:09}",
        title=title,
        description=description,
        bullets=(),
        price_text=f"${price}",
        prices=(price,),
        options=tuple((name, tuple(values)) for name, values in options),
        attributes=tuple(attributes),
        category="garden",
        query=query,
        product_category=category,
    )


def goal(target, text, *, attributes=("leak proof",), options=(), price_upper=20.0):
    return Goal(
        row=target.row,
        asin=target.asin,
        category=target.category,
        query=target.query,
        name=target.title,
        product_category=target.product_category,
        instruction_text=f"{text}, and price lower than {price_upper:.2f} dollars",
        attributes=tuple(attributes),
        price_upper=price_upper,
        goal_options=tuple(options),
        weight=1.0,
    )


class Catalogue:
    """Products in a list."""

    def __init__(self, products):
        self.products = products
        self.num_products = len(products)

    def __len__(self):
        return len(self.products)

    def product(self, row):
        return self.products[row]


class Goals(list):
    """Goals in a list; a product costs the first of its prices."""

    def __init__(self, goals, products):
        super().__init__(
            goal.as_original(human=not all(isinstance(one, tuple) for one in goal.goal_options)) for goal in goals
        )
        self.goal = goals.__getitem__
        self.price = lambda row: products[row].prices[0]


class Engine:
    """Ranks products by how many words of the query their titles hold."""

    def __init__(self, products):
        self.titles = [set(product.title.lower().split()) for product in products]
        self.asked = 0

    def rows(self, query, k=50):
        self.asked += 1
        words = query.lower().split()
        counts = [sum(word in title for word in words) for title in self.titles]
        return tuple(
            sorted((row for row, count in enumerate(counts) if count), key=lambda row: (-counts[row], row))[:k]
        )


def tiny_shop(products, goals, rules="fixed"):
    return Shop(
        Catalogue(products),
        Goals(goals, products),
        Engine(products),
        repairs_of(rules),
        noun_fn=lambda title: title.lower().split(),
        noun_source="injected",
        parse=parse if rules == "original" else parse_kindly,
    )


def fake_env(shop, state, *, max_turns=None, turns=0):
    """What a shopper sees of an environment."""
    return SimpleNamespace(
        shop=shop,
        state=state,
        episode=(state, turns, turns),
        limits=SimpleNamespace(max_turns=max_turns, max_actions=None),
    )
