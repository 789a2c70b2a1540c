"""Queries that an instruction suggests, for uniform play and for scripted shoppers."""

from functools import lru_cache

# What begins the limit of the price, and the options, in an instruction.
_LIMIT, _WISHES = ", and price lower than ", " with "
_OPENING = "find me "
_SIGNS = str.maketrans(dict.fromkeys("[]|\n\r", " "))


@lru_cache(maxsize=4096)
def suggest_queries(instruction: str) -> tuple[str, ...]:
    """Return an instruction without its limit as a query, and the same without what follows its first "with".

    Without brackets and bars, which stand for something else in an action.

    >>> suggest_queries("Find me soft socks with color: red, and price lower than 20.00 dollars")
    ('soft socks with color: red', 'soft socks')
    """
    text = " ".join(instruction.translate(_SIGNS).split())
    wishes = text.rpartition(_LIMIT)[0] or text
    whole = wishes[len(_OPENING) :] if wishes.lower().startswith(_OPENING) else wishes
    short = whole.partition(_WISHES)[0].strip(" ,")
    return tuple(dict.fromkeys(query for query in (whole, short) if query)) or ("product",)
