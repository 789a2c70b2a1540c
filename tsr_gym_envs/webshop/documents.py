"""What the search engine reads of a product."""

from tsr_gym_envs.webshop.product import Product


def document_of(product: Product) -> str:
    """Return the text by which a product is found: title, description, first bullet and options, in lower case."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options)
    first = product.bullets[0] if product.bullets else ""
    return " ".join((product.title, product.description, first, options)).lower()
