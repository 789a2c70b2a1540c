"""A catalogue on disk: a folder with a SQLite file, a few arrays and a search index, never changed once written.

``store.json`` in the folder names the sub-folder with the data. It is replaced in one step when an import is complete,
so that readers see the old catalogue or the new one and nothing in between. With each product it keeps the nouns of the
title, which the title score compares. The original asks spaCy for parts of speech. Without spaCy and stored answers of
spaCy, a heuristic replaces it; `open_nouns` returns the name of the source, because scores depend on it.
"""

import json
import os
import re
import sqlite3
import threading
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tsr_gym import InvalidCatalogue
from tsr_gym.files import write_atomically
from tsr_gym_envs.webshop.catalogue.original_files import Annotation, Instruction
from tsr_gym_envs.webshop.catalogue.product import Product

FORMAT = 1
META = "store.json"
PRODUCTS, INDEX = "products.sqlite", "search"
ARRAYS = ("price_ends", "stored_prices", "splits")
# The array `splits` holds the number of a product's split.
SPLIT_NAMES = ("train", "valid", "test")
# One encoder for all texts: `json.dumps` would construct one per call.
encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class StoreMeta:
    """The contents of ``store.json``.

    Attributes:
        format: Version of the layout.
        data: Name of the sub-folder with the data.
        digest: Hash of the content, equal wherever the same files were imported.
        num_products: Products in the store.
        without_entry: A product that is missing in the file of attributes, None if none is.
        nouns: The model that tagged the nouns of the titles, None if they are not stored.
        sizes: Bytes of each file, by its path below the sub-folder.
    """

    format: int
    data: str
    digest: str
    num_products: int
    without_entry: str | None
    nouns: str | None
    sizes: dict[str, int]


def is_store(path: Path) -> bool:
    """Return whether a catalogue was imported into a folder."""
    return (path / META).is_file()


def open_store(path: str | Path) -> "Catalogue":
    """Return the catalogue of a folder; a process opens it once.

    Raises:
        InvalidCatalogue: The folder holds no catalogue, a damaged one, or one of another version.
    """
    # The data of a replaced catalogue is deleted. If opening fails and the description has changed in the meantime, the
    # new data is opened; otherwise the damage is real.
    folder = Path(path).resolve()
    while True:
        meta = _read_meta(folder)
        try:
            return _opened(folder, meta.data)
        except InvalidCatalogue:
            # An import may have replaced the catalogue between the two steps.
            if _read_meta(folder) == meta:
                raise


def write_meta(folder: Path, meta: StoreMeta) -> None:
    """Make a sub-folder the data of a folder, in one step."""
    write_atomically(folder / META, f"{json.dumps(asdict(meta), indent=2)}\n".encode())


def _read_meta(folder: Path) -> StoreMeta:
    try:
        fields = json.loads((folder / META).read_bytes())
        meta = StoreMeta(**fields)
    except OSError as error:
        raise InvalidCatalogue(
            f"no catalogue in {folder}: {error.strerror}; make one with `tsr webshop import`"
        ) from error
    except (ValueError, TypeError) as error:
        raise InvalidCatalogue(f"{folder / META} is damaged: {error}; import the catalogue again") from error
    if meta.format != FORMAT:
        raise InvalidCatalogue(f"wanted format {FORMAT} in {folder}, got {meta.format}: import the catalogue again")
    return meta


@lru_cache(maxsize=16)
def _opened(folder: Path, data: str) -> "Catalogue":
    meta = _read_meta(folder)
    for name, size in meta.sizes.items():
        path = folder / data / name
        actual = path.stat().st_size if path.is_file() else None
        if actual != size:
            came = "no such file" if actual is None else f"{actual} bytes"
            raise InvalidCatalogue(f"wanted {size} bytes in {path}, got {came}: import the catalogue again")
    return Catalogue(folder, meta)


class _Own(threading.local):
    """The connection of a thread, which other threads and forked processes must not use.

    Python caches statements per connection, and two threads that use the same statement disturb each other.
    """

    process: int = -1
    connection: sqlite3.Connection


class Catalogue:
    """The products and tasks of a shop, read from disk on access.

    Opening costs milliseconds at any size, and processes that use the same catalogue share its memory. Copies and
    pickles hold the path only; each thread and each forked process opens the file again.

    Args:
        path: The folder of the store.
        meta: The contents of its ``store.json``.

    Attributes:
        path: The folder of the store.
        data: Its sub-folder with the data.
        meta: The contents of its ``store.json``.
        digest: Hash of the content.
        num_products: Products, numbered from 0.
        price_ends: The listed prices of each product, `[P, 2]`; the second is NaN for a single price.
        stored_prices: The fixed price of each product, `[P]`.
        splits: The split of each product, `[P]`: its number in `SPLIT_NAMES`.
    """

    def __init__(self, path: Path, meta: StoreMeta) -> None:
        self.path, self.meta = path, meta
        self.data = path / meta.data
        self.digest, self.num_products = meta.digest, meta.num_products
        self.price_ends, self.stored_prices, self.splits = (read_array(self.data / f"{name}.npy") for name in ARRAYS)
        self._product = lru_cache(maxsize=4096)(self._read_product)
        self._rows_with = lru_cache(maxsize=64)(self._read_rows)
        self._own = _Own()

    def __len__(self) -> int:
        return self.num_products

    def __reduce__(self) -> tuple[Any, ...]:
        return open_store, (self.path,)

    def product(self, row: int) -> Product:
        """Return a product by its number.

        Raises:
            IndexError: The number is out of range.
        """
        return self._product(int(row))

    def row_of(self, asin: str) -> int | None:
        """Return the number of the product with an id, None for an unknown id."""
        rows = self._select("SELECT row FROM product WHERE asin = ?", asin)
        return rows[0][0] if rows else None

    def rows_with(self, field: Literal["category", "query"], value: str) -> tuple[int, ...]:
        """Return the numbers of all products with this category or crawl query, in ascending order."""
        return self._rows_with(field, value)

    def instruction(self, row: int) -> Instruction | None:
        """Return the generated instruction for a product, None if it has none."""
        rows = self._select("SELECT text, attributes FROM instruction WHERE row = ?", int(row))
        return Instruction(rows[0][0], _texts(rows[0][1])) if rows else None

    def annotations(self, row: int) -> tuple[Annotation, ...]:
        """Return the instructions that people wrote for a product."""
        query = "SELECT text, attributes, options FROM annotation WHERE row = ? ORDER BY number"
        return tuple(
            Annotation(text, _texts(attributes), _texts(options))
            for text, attributes, options in self._select(query, int(row))
        )

    def title_nouns(self, title: str) -> tuple[str, ...] | None:
        """Return the stored nouns of a product's title; None for other titles and in stores without nouns."""
        rows = self._select("SELECT nouns FROM title WHERE key = ?", title_key(title)) if self.meta.nouns else []
        return _texts(rows[0][0]) if rows else None

    def nouns(self, row: int) -> tuple[str, ...] | None:
        """Return the stored nouns of a product's title, None in stores without nouns."""
        return self.title_nouns(self.product(row).title)

    def tasks(self, source: Literal["instruction", "annotation"]) -> list[tuple[Any, ...]]:
        """Return the tasks of one source, in the order of the products.

        Returns:
            A row per instruction or annotation: product, number among the product's, combinations of its options,
            tier of the stored limit, attributes in JSON.
        """
        return self._select(f"SELECT row, number, combinations, tier, attributes FROM {source} ORDER BY row, number")

    def _read_product(self, row: int) -> Product:
        rows = self._select("SELECT asin, data FROM product WHERE row = ?", row)
        if not rows:
            raise IndexError(f"wanted a product from 0 to {self.num_products - 1}, got {row}")
        return decode_product(row, *rows[0])

    def _read_rows(self, field: str, value: str) -> tuple[int, ...]:
        if field not in ("category", "query"):
            raise ValueError(f"wanted the field category or query, got {field!r}")
        return tuple(row for (row,) in self._select(f"SELECT row FROM product WHERE {field} = ? ORDER BY row", value))

    def _select(self, query: str, *values: object) -> list[Any]:
        own = self._own
        # A fork copies the connection object, and SQLite forbids its use in the child.
        if own.process != os.getpid():
            own.process, own.connection = os.getpid(), self._connect()
        try:
            return own.connection.execute(query, values).fetchall()
        except UnicodeEncodeError:
            # An agent may ask for half a surrogate pair, which SQLite cannot encode and no product contains.
            return []
        except sqlite3.DatabaseError as error:
            raise InvalidCatalogue(f"{self.data / PRODUCTS} is damaged: {error}; import the catalogue again") from error

    def _connect(self) -> sqlite3.Connection:
        # A finished store is never written, so SQLite takes no locks and the folder may be read-only.
        address = f"{(self.data / PRODUCTS).as_uri()}?mode=ro&immutable=1"
        # The file is not mapped into memory: reads would hardly be faster, and its pages would count as memory of the
        # process, while the system's page cache is shared by all processes.
        return sqlite3.connect(address, uri=True)


def read_array(path: Path) -> NDArray[Any]:
    """Return an array file, mapped into memory.

    Raises:
        InvalidCatalogue: The file is missing or damaged.
    """
    try:
        return np.asarray(np.load(path, mmap_mode="r"))
    # numpy evaluates the header as a Python literal, so a damaged one can raise almost any exception.
    except Exception as error:
        raise InvalidCatalogue(f"{path} is missing or damaged: {error}; import the catalogue again") from error


def encode_product(product: Product) -> str:
    """Return a product as JSON, without its number and id."""
    return encode_json(product[2:])


def decode_product(row: int, asin: str, data: str) -> Product:
    """Return the product that `encode_product` wrote.

    Raises:
        InvalidCatalogue: The text is damaged.
    """
    try:
        title, description, bullets, price_text, prices, options, attributes, *rest = json.loads(data)
        groups = tuple([(name, tuple(values)) for name, values in options])
        fields = (title, description, tuple(bullets), price_text, tuple(prices), groups, tuple(attributes))
        return Product(row, asin, *fields, *rest)
    except (ValueError, TypeError) as error:
        raise InvalidCatalogue(f"product {asin} is damaged: {error}; import the catalogue again") from error


def _texts(data: str) -> tuple[str, ...]:
    try:
        return tuple(json.loads(data))
    except ValueError as error:
        raise InvalidCatalogue(f"a list of texts is damaged: {error}; import the catalogue again") from error


def title_key(title: str) -> int:
    """Return the key of a title in the table of nouns."""
    return int.from_bytes(blake2b(title.encode(errors="surrogatepass"), digest_size=8).digest(), "little", signed=True)


@lru_cache(maxsize=1)
def _words() -> dict[str, str]:
    return tomllib.loads((files("tsr_gym_envs.webshop") / "words.toml").read_text(encoding="utf-8"))


def word_list(name: str) -> tuple[str, ...]:
    """Return a list of ``words.toml``, in its order."""
    return tuple(_words()[name].split())


# Title to nouns in lower case, repetitions included.
NounFn = Callable[[str], Sequence[str]]

# The first one that is installed is used; the original loads the first.
MODELS = ("en_core_web_sm", "en_core_web_md", "en_core_web_lg")
_PARTS_OF_SPEECH = ("NOUN", "PROPN")
# Words that are neither nouns nor adjectives; almost any other word of a title is tagged as a proper noun.
FUNCTION_WORDS = frozenset(word_list("function"))
_LETTER = r"[^\W\d_]"
# Where spaCy's English tokeniser cuts inside of a word.
_CUTS = re.compile(
    rf"(?<={_LETTER})[-–—~,](?={_LETTER})|(?<=[^\W_])[:<>=/](?={_LETTER})|(?<=[a-z])\.(?=[A-Z])|(?<=\d)[-+*^](?=\d)"
)
_EDGES = re.compile(r"^[\W_]+|['’]s$|[\W_]+$", re.IGNORECASE)


def guess_nouns(title: str) -> tuple[str, ...]:
    """Return the words of a title that are likely to be tagged as nouns: all but function words and measures.

    Titles are headings: spaCy calls "Soft" in "Soft Cotton Sheets" a proper noun, so adjectives stay. Against
    en_core_web_sm 3.8 on the 1000 titles of the small set, 95 % of these words are its nouns, 96 % of its nouns are
    among them, and r_type agrees on 93 % of the pairs of a query's best hit and one of the ten behind it.

    >>> guess_nouns("Men's Slim-fit Shirt with Pocket, 2 pack of 38mm buttons")
    ('men', 'slim', 'fit', 'shirt', 'pocket', 'pack', 'buttons')
    """
    parts = (part for word in title.split() for part in _CUTS.split(word))
    words = (_EDGES.sub("", _EDGES.sub("", part)).lower() for part in parts)
    return tuple(word for word in words if word[:1].isalpha() and word not in FUNCTION_WORDS)


def installed_model() -> str | None:
    """Return the name of the installed spaCy model, None if spaCy or every model is missing."""
    if find_spec("spacy") is None:
        return None
    return next((name for name in MODELS if find_spec(name) is not None), None)


@lru_cache(maxsize=1)
def _load(model: str) -> Any:
    # Excluding these components changes no part of speech on the titles of the small set and saves most of the time.
    return import_module(model).load(exclude=["parser", "ner", "lemmatizer"])


def tag_nouns(titles: Iterable[str], model: str) -> Iterator[tuple[str, ...]]:
    """Yield the nouns of each title, as a spaCy model tags them."""
    for doc in _load(model).pipe(titles):
        yield tuple(token.text.lower() for token in doc if token.pos_ in _PARTS_OF_SPEECH)


def open_nouns(noun_fn: NounFn | None = None, catalogue: Catalogue | None = None) -> tuple[NounFn, str]:
    """Return a function from a title to its nouns, and the name of its source.

    The first available one of: `noun_fn` (``"injected"``), the nouns in the catalogue (``"catalogue"``), an installed
    spaCy model (``"spacy:<model>"``), `guess_nouns` (``"heuristic"``).

    Args:
        noun_fn: The caller's function, from title to nouns in lower case.
        catalogue: The catalogue of the titles. If it stores nouns, other titles are guessed.
    """
    if noun_fn is not None:
        return noun_fn, "injected"
    if catalogue is not None and catalogue.meta.nouns is not None:
        return lru_cache(maxsize=4096)(partial(_stored_nouns, catalogue)), "catalogue"
    model = installed_model()
    if model is None:
        return lru_cache(maxsize=4096)(guess_nouns), "heuristic"
    return lru_cache(maxsize=4096)(lambda title: next(tag_nouns([title], model))), f"spacy:{model}"


def _stored_nouns(catalogue: Catalogue, title: str) -> tuple[str, ...]:
    stored = catalogue.title_nouns(title)
    return guess_nouns(title) if stored is None else stored
