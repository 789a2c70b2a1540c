"""Catalogues: opened in place, imported from the original's files, or generated on first use.

An import reads the files once, record by record, and puts the store in place in one step. An interrupted import leaves
only a folder that the next import removes; an earlier store stays.
"""

import json
import math
import shutil
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files as package_files
from itertools import tee
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import numpy as np

from tsr_gym import ConfigError, InvalidCatalogue, InvalidCorpus, TsrGymError
from tsr_gym.files import cache_home, locked, sync
from tsr_gym_envs.lucene_bm25 import BM25Index
from tsr_gym_envs.lucene_bm25.layout import VERSION as INDEX_VERSION
from tsr_gym_envs.settings import in_split
from tsr_gym_envs.verified import SUFFIX
from tsr_gym_envs.webshop.catalogue.original_files import (
    UNKNOWN_ATTRIBUTES,
    OriginalFiles,
    find_files,
    read_annotations,
    read_attributes,
    read_products,
)
from tsr_gym_envs.webshop.catalogue.original_random import stored_price, stored_tier
from tsr_gym_envs.webshop.catalogue.product import Product, document_of
from tsr_gym_envs.webshop.catalogue.store import (
    ARRAYS,
    FORMAT,
    INDEX,
    META,
    PRODUCTS,
    SPLIT_NAMES,
    Catalogue,
    StoreMeta,
    decode_product,
    encode_json,
    encode_product,
    installed_model,
    is_store,
    open_store,
    tag_nouns,
    title_key,
    write_meta,
)

# Called with the name of a stage, the amount done and the total: bytes of a file, or products.
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
    """Import files into a folder that this process has locked, and remove the store that it replaces.

    Args:
        sources: The files.
        folder: The folder of the store.
        num_products: Number of items to read from the list; None reads all.
        with_nouns: Whether to store the nouns of the titles, which needs an installed spaCy model.
        progress: Called once in a while.

    Raises:
        InvalidCatalogue: A file is damaged; the folder keeps its earlier contents.
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
        # The folder has no store, or a damaged one.
        kept = None
    for draft in folder.glob(f"{META}.*"):
        draft.unlink()
    for path in folder.glob("data-*"):
        # The description names the valid data; every other folder is of an interrupted or replaced import.
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
    # All files reach the disk before the description names them, so a crash leaves the old or the new store.
    for path in files:
        sync(path)
    sizes = {path.relative_to(data).as_posix(): path.stat().st_size for path in files}
    return StoreMeta(format=FORMAT, data=data.name, nouns=model, sizes=sizes, **counts)


def _stage(sources: OriginalFiles, staged: sqlite3.Connection, progress: Progress) -> None:
    """Write attributes and annotations into a table by id, because their files may be in any order."""
    staged.execute("CREATE TABLE entry(asin TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")
    staged.execute("CREATE TABLE annotations(asin TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")
    entries = read_attributes(sources.instructions, lambda done, size: progress("attributes", done, size))
    _insert(staged, "REPLACE INTO entry VALUES(?, ?)", ((asin, encode_json(entry)) for asin, entry in entries))
    if sources.annotations is not None:
        read = read_annotations(sources.annotations, lambda done, size: progress("annotations", done, size))
        _insert(staged, "REPLACE INTO annotations VALUES(?, ?)", ((asin, encode_json(notes)) for asin, notes in read))


def _write_products(
    sources: OriginalFiles,
    num_products: int | None,
    staged: sqlite3.Connection,
    store: sqlite3.Connection,
    data: Path,
    progress: Progress,
) -> dict[str, Any]:
    """Write the tables and arrays of the products; return their fields of `StoreMeta`."""
    ends, stored, splits = array("d"), array("d"), array("B")
    digest, without_entry = blake2b(digest_size=16), None
    # The files of the original hold gigabytes. Products are read one at a time, and attributes and annotations are
    # looked up in a temporary database instead of memory.
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
        # Prices and limits are derived from the id, so that they do not depend on the order of the file or on a seed.
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
    """Write the tasks of a product, each with its fixed limit."""
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
    """Write the nouns of all titles; products with the same title share an entry."""
    rows = store.execute("SELECT row, asin, data FROM product")
    titles = (decode_product(*row).title for row in rows)
    # spaCy is fast only on a stream of texts, so titles are read once and paired with their nouns as they arrive.
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
    """Return a new private database, without a journal because it is removed if writing it fails."""
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -131072")
    return connection


def _insert(database: sqlite3.Connection, statement: str, rows: Iterable[tuple[str, str]]) -> None:
    database.executemany(statement, rows)
    database.commit()


def _look_up(staged: sqlite3.Connection, table: str, asin: str) -> Any:
    record = staged.execute(f"SELECT value FROM {table} WHERE asin = ?", (asin,)).fetchone()
    return json.loads(record[0]) if record else None


def _silent(stage: str, done: int, total: int) -> None:
    """Ignore the progress."""


EMBEDDED_PRODUCTS = 1000


def open_catalogue(where: str | Path | None = None, *, num_products: int | None = None) -> Catalogue:
    """Return a catalogue.

    Args:
        where: The folder of an imported catalogue, or a folder with the original's files, which are imported on first
            use into the cache (`tsr_gym.files`). None stands for generated products.
        num_products: Number of items to read from the original's list (None reads all), or of generated products (None
            generates 1000).

    Raises:
        InvalidCatalogue: A file is missing or damaged.
        ConfigError: `num_products` is impossible.
    """
    if num_products is not None and num_products < 1:
        raise ConfigError(f"wanted num_products >= 1 or None, got {num_products}")
    if where is None:
        return _generated(num_products or EMBEDDED_PRODUCTS)
    path = Path(where)
    if is_store(path):
        catalogue = open_store(path)
        if num_products is not None and num_products < len(catalogue):
            raise ConfigError(
                f"{path} was imported with {len(catalogue)} products, and search ranks among all of them: for "
                f"{num_products}, use `tsr webshop import FILES --out DIR --num-products {num_products}`"
            )
        return catalogue
    sources = find_files(path)
    folder = cache_home() / "webshop" / f"imported-{_key(sources, num_products)}"
    return _first_use(folder, lambda: write_store(sources, folder, num_products=num_products))


def import_catalogue(
    files: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    num_products: int | None = None,
    with_nouns: bool = True,
    progress: Progress | None = None,
) -> Catalogue:
    """Import the original's files into a folder, which keeps its earlier contents until the import is complete.

    Args:
        files: Their folder, or the files themselves.
        out: The folder of the store; an existing store is replaced.
        num_products: Number of items to read from the list; None reads all.
        with_nouns: Whether to store the nouns of the titles, which needs an installed spaCy model.
        progress: Called with a stage, the amount done, and the total.

    Raises:
        InvalidCatalogue: A file is missing or damaged.
    """
    sources, folder = find_files(files), Path(out).resolve()
    with locked(folder / LOCK):
        write_store(sources, folder, num_products=num_products, with_nouns=with_nouns, progress=progress)
    return open_store(folder)


def _generated(num_products: int) -> Catalogue:
    from tsr_gym_envs.webshop.generator import write_catalogue

    folder = cache_home() / "webshop" / f"generated-{num_products}-{_generator_key()}"

    def write() -> None:
        with TemporaryDirectory() as scratch:
            write_catalogue(scratch, num_products, 0)
            write_store(find_files(scratch), folder)

    return _first_use(folder, write)


@lru_cache(maxsize=1)
def _generator_key() -> str:
    """Return a hash of the generator's files, so that catalogues of an earlier version are not reused."""
    digest = blake2b(repr((FORMAT, INDEX_VERSION)).encode(), digest_size=6)
    folders = [package_files("tsr_gym_envs.webshop.generator")]
    for folder in folders:
        for path in sorted(folder.iterdir(), key=lambda path: path.name):
            if path.is_dir() and path.name != "__pycache__":
                folders.append(path)
            elif path.is_file():
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _first_use(folder: Path, write: Callable[[], None]) -> Catalogue:
    """Return the catalogue of a cache folder; a missing one is built by one process while others wait."""
    catalogue = _intact(folder)
    if catalogue is not None:
        return catalogue
    with locked(folder / LOCK):
        # Another process may have finished while this one waited for the lock.
        if _intact(folder) is None:
            write()
    return open_store(folder)


def _intact(folder: Path) -> Catalogue | None:
    if not is_store(folder):
        return None
    try:
        catalogue = open_store(folder)
        BM25Index.open(catalogue.data / INDEX)
    except (InvalidCatalogue, InvalidCorpus):
        # A damaged cache is built again.
        return None
    return catalogue


def _key(sources: OriginalFiles, num_products: int | None) -> str:
    """Return a hash of the path, size and time of change of a catalogue's files."""
    parts = [
        (str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in sources if path is not None
    ]
    return blake2b(repr((FORMAT, INDEX_VERSION, num_products, parts)).encode(), digest_size=12).hexdigest()
