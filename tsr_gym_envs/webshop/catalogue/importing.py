"""From the original's files to a store: read once, piece by piece, and put in place in one step.

An import that is interrupted leaves nothing but a folder that the next one removes; what was there before stays.
"""

import json
import math
import shutil
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from hashlib import blake2b
from itertools import tee
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from tsr_gym import InvalidCatalogue, TsrGymError
from tsr_gym.files import sync
from tsr_gym_envs.lucene_bm25 import BM25Index
from tsr_gym_envs.settings import in_split
from tsr_gym_envs.verified import SUFFIX
from tsr_gym_envs.webshop.catalogue.nouns import installed_model, tag_nouns
from tsr_gym_envs.webshop.catalogue.original_files import (
    UNKNOWN_ATTRIBUTES,
    OriginalFiles,
    read_annotations,
    read_attributes,
    read_products,
)
from tsr_gym_envs.webshop.catalogue.prices import stored_price, stored_tier
from tsr_gym_envs.webshop.catalogue.product import Product, document_of
from tsr_gym_envs.webshop.catalogue.store import (
    ARRAYS,
    FORMAT,
    INDEX,
    META,
    PRODUCTS,
    SPLIT_NAMES,
    StoreMeta,
    decode_product,
    encode_json,
    encode_product,
    title_key,
    write_meta,
)

# Called with the name of a stage, how much of it is done and how much there is: bytes of a file, or products.
Progress = Callable[[str, int, int], None]
LOCK = "import.lock"
_STAGED = "staged.sqlite"
_REPORT_EVERY = 1000
_MAX_COMBINATIONS = 1_000_000
_SCHEMA = """
CREATE TABLE product(row INTEGER PRIMARY KEY, asin TEXT, category TEXT, query TEXT, data TEXT);
CREATE TABLE instruction(row INTEGER PRIMARY KEY, number INTEGER, combinations INTEGER, tier INTEGER, text TEXT,
    attributes TEXT);
CREATE TABLE annotation(row INTEGER, number INTEGER, combinations INTEGER, tier INTEGER, text TEXT, attributes TEXT,
    options TEXT, PRIMARY KEY(row, number)) WITHOUT ROWID;
CREATE TABLE title(key INTEGER PRIMARY KEY, nouns TEXT);
"""
_INDEXES = """
CREATE UNIQUE INDEX by_asin ON product(asin);
CREATE INDEX by_category ON product(category);
CREATE INDEX by_query ON product(query);
"""


def write_store(
    sources: OriginalFiles,
    folder: Path,
    *,
    num_products: int | None = None,
    with_nouns: bool = True,
    progress: Progress | None = None,
) -> None:
    """Import files into a folder that this process has locked, and remove what it replaces.

    Args:
        sources: The files.
        folder: Where the store shall be.
        num_products: Read the first so many items of the list; None reads all.
        with_nouns: Store the nouns of the titles, where a spaCy model is installed.
        progress: Called now and then.

    Raises:
        InvalidCatalogue: A file is damaged; the folder holds what it held before.
    """
    remove_leftovers(folder)
    data = folder / f"data-{uuid4().hex[:12]}"
    data.mkdir()
    try:
        write_meta(folder, _write_data(sources, data, num_products, with_nouns, progress or _silent))
    except sqlite3.Error as error:
        raise TsrGymError(f"cannot write the catalogue into {data}: {error}") from error
    finally:
        remove_leftovers(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove the data of earlier imports, finished or not, from a folder that this process has locked."""
    try:
        kept = json.loads((folder / META).read_bytes())["data"]
    except (OSError, ValueError, TypeError, KeyError):
        # There is no store, or none that could be opened.
        kept = None
    for draft in folder.glob(f"{META}.*"):
        draft.unlink()
    for path in folder.glob("data-*"):
        if path.name != kept:
            shutil.rmtree(path, ignore_errors=True)


def _write_data(
    sources: OriginalFiles, data: Path, num_products: int | None, with_nouns: bool, progress: Progress
) -> StoreMeta:
    model = installed_model() if with_nouns else None
    with closing(_database(data / _STAGED)) as staged, closing(_database(data / PRODUCTS)) as store:
        store.executescript(_SCHEMA)
        _stage(sources, staged, progress)
        counts = _write_products(sources, num_products, staged, store, data, progress)
        if model is not None:
            _write_nouns(store, model, counts["num_products"], progress)
        BM25Index.build(_documents(store, counts["num_products"], progress), data / INDEX)
    (data / _STAGED).unlink()
    files = sorted(path for path in data.rglob("*") if path.is_file() and path.suffix != SUFFIX)
    for path in files:
        sync(path)
    sizes = {path.relative_to(data).as_posix(): path.stat().st_size for path in files}
    return StoreMeta(format=FORMAT, data=data.name, nouns=model, sizes=sizes, **counts)


def _stage(sources: OriginalFiles, staged: sqlite3.Connection, progress: Progress) -> None:
    """Put what is known by id where it can be looked up, whatever the order of its file."""
    staged.execute("CREATE TABLE entry(asin TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")
    staged.execute("CREATE TABLE annotations(asin TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")
    entries = read_attributes(sources.instructions, lambda done, size: progress("attributes", done, size))
    _insert(staged, "REPLACE INTO entry VALUES(?, ?)", ((asin, encode_json(entry)) for asin, entry in entries))
    if sources.annotations is not None:
        read = read_annotations(sources.annotations, lambda done, size: progress("annotations", done, size))
        _insert(staged, "REPLACE INTO annotations VALUES(?, ?)", ((asin, encode_json(found)) for asin, found in read))


def _write_products(
    sources: OriginalFiles,
    num_products: int | None,
    staged: sqlite3.Connection,
    store: sqlite3.Connection,
    data: Path,
    progress: Progress,
) -> dict[str, Any]:
    """Write the tables and arrays of the products, and return what the store's description says of them."""
    ends, stored, splits = array("d"), array("d"), array("B")
    digest, without_entry = blake2b(digest_size=16), None
    for product in read_products(sources.products, num_products, lambda done, size: progress("products", done, size)):
        entry = _look_up(staged, "entry", product.asin)
        annotations = _look_up(staged, "annotations", product.asin) or []
        if entry is None:
            without_entry = without_entry or product.asin
            entry = (UNKNOWN_ATTRIBUTES, None)
        whole = product._replace(attributes=tuple(entry[0]))
        text = encode_product(whole)
        store.execute(
            "INSERT INTO product VALUES(?, ?, ?, ?, ?)", (whole.row, whole.asin, whole.category, whole.query, text)
        )
        price = stored_price(whole.asin, whole.prices)
        _write_tasks(store, whole, price, entry[1], annotations)
        ends.extend((whole.prices[0], whole.prices[1] if len(whole.prices) > 1 else math.nan))
        stored.append(price)
        splits.append(next(n for n, name in enumerate(SPLIT_NAMES) if in_split(whole.asin.encode(), name)))
        digest.update(encode_json((whole.asin, text, entry[1], annotations)).encode())
    if not stored:
        raise InvalidCatalogue(f"no product in {sources.products}")
    store.executescript(_INDEXES)
    store.commit()
    for name, values in zip(ARRAYS, (ends, stored, splits), strict=True):
        np.save(data / f"{name}.npy", np.asarray(values).reshape(-1, 2) if values is ends else np.asarray(values))
    return {"digest": digest.hexdigest(), "num_products": len(stored), "without_entry": without_entry}


def _write_tasks(
    store: sqlite3.Connection, product: Product, price: float, instruction: Any, annotations: list[Any]
) -> None:
    """Write what shoppers are asked for, with the limit that belongs to it for good."""
    if instruction is not None:
        text, attributes = instruction
        combinations = math.prod(len(values) for _, values in product.options)
        if combinations > _MAX_COMBINATIONS:
            raise InvalidCatalogue(
                f"product {product.asin}: wanted at most {_MAX_COMBINATIONS} combinations of its "
                f"'customization_options', got {combinations}: each one is a goal"
            )
        tier = stored_tier(price, product.asin)
        row = (product.row, 0, combinations, tier, text, encode_json(attributes))
        store.execute("INSERT INTO instruction VALUES(?, ?, ?, ?, ?, ?)", row)
    for number, (text, attributes, options) in enumerate(annotations):
        tier = stored_tier(price, product.asin, number + 1)
        fields = (product.row, number, 1, tier, text, encode_json(attributes), encode_json(options))
        store.execute("INSERT INTO annotation VALUES(?, ?, ?, ?, ?, ?, ?)", fields)


def _write_nouns(store: sqlite3.Connection, model: str, num_products: int, progress: Progress) -> None:
    """Write the nouns of all titles; two products with one title share them."""
    rows = store.execute("SELECT row, asin, data FROM product")
    titles = (decode_product(*row).title for row in rows)
    first, second = tee(titles)
    for number, (title, nouns) in enumerate(zip(first, tag_nouns(second, model), strict=True)):
        store.execute("REPLACE INTO title VALUES(?, ?)", (title_key(title), encode_json(nouns)))
        if number % _REPORT_EVERY == 0:
            progress("nouns", number, num_products)
    store.commit()


def _documents(store: sqlite3.Connection, num_products: int, progress: Progress) -> Iterator[tuple[str, str]]:
    for row in store.execute("SELECT row, asin, data FROM product ORDER BY row"):
        if row[0] % _REPORT_EVERY == 0:
            progress("index", row[0], num_products)
        yield row[1], document_of(decode_product(*row))


def _database(path: Path) -> sqlite3.Connection:
    """Return a new database that nobody else sees: without a journal, because it is removed if writing it fails."""
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -131072")
    return connection


def _insert(database: sqlite3.Connection, statement: str, rows: Iterable[tuple[str, str]]) -> None:
    database.executemany(statement, rows)
    database.commit()


def _look_up(staged: sqlite3.Connection, table: str, asin: str) -> Any:
    found = staged.execute(f"SELECT value FROM {table} WHERE asin = ?", (asin,)).fetchone()
    return json.loads(found[0]) if found else None


def _silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""
