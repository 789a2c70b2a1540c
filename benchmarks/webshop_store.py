"""Which embedded store holds WebShop's products: SQLite, LMDB or Arrow, on the same products and the same work.

Each writes all products, and reads the same random ones as `Product` values and by id. What they read is compared
before anything is timed. Memory is that of a separate process: private pages after the reads, less those after the
imports.

Run: python -m benchmarks.webshop_store [--products 100000] [--reads 20000]
"""

import argparse
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import lmdb
import numpy as np
import pyarrow as pa

from benchmarks.measure import run_timed, write_result
from tsr_gym_envs.webshop.catalogue.original_files import read_products
from tsr_gym_envs.webshop.catalogue.product import Product
from tsr_gym_envs.webshop.catalogue.store import decode_product, encode_product
from tsr_gym_envs.webshop.generator import write_catalogue

BATCH = 1024
TEXT, TEXTS = pa.string(), pa.list_(pa.string())
SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("asin", TEXT),
        ("title", TEXT),
        ("description", TEXT),
        ("bullets", TEXTS),
        ("price_text", TEXT),
        ("prices", pa.list_(pa.float64())),
        ("options", pa.list_(pa.struct([("name", TEXT), ("values", TEXTS)]))),
        ("attributes", TEXTS),
        ("category", TEXT),
        ("query", TEXT),
        ("product_category", TEXT),
        ("image", TEXT),
    ]
)


class Opened(NamedTuple):
    """A store that can be read: products by number, numbers by id."""

    product: Callable[[int], Product]
    row_of: Callable[[str], int]


def write_sqlite(path: Path, products: Iterator[Product]) -> None:
    """Write a table with the number as key, and an index of ids."""
    path.mkdir()
    database = sqlite3.connect(path / "products.sqlite")
    database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
    database.execute("CREATE TABLE product(row INTEGER PRIMARY KEY, asin TEXT, data TEXT)")
    rows = ((product.row, product.asin, encode_product(product)) for product in products)
    database.executemany("INSERT INTO product VALUES(?, ?, ?)", rows)
    database.execute("CREATE UNIQUE INDEX by_asin ON product(asin)")
    database.commit()
    database.close()


def open_sqlite(path: Path) -> Opened:
    """Open the table read-only, as the catalogue does."""
    database = sqlite3.connect(f"{(path / 'products.sqlite').as_uri()}?mode=ro&immutable=1", uri=True)

    def product(row: int) -> Product:
        return decode_product(row, *database.execute("SELECT asin, data FROM product WHERE row = ?", (row,)).fetchone())

    def row_of(asin: str) -> int:
        return int(database.execute("SELECT row FROM product WHERE asin = ?", (asin,)).fetchone()[0])

    return Opened(product, row_of)


def write_lmdb(path: Path, products: Iterator[Product]) -> None:
    """Write two maps: number to product, id to number."""
    environment = lmdb.open(str(path), map_size=1 << 40, max_dbs=2, sync=False)
    by_row, by_asin = (environment.open_db(name) for name in (b"row", b"asin"))
    writer = environment.begin(write=True)
    for product in products:
        key = product.row.to_bytes(4, "big")
        writer.put(key, f"{product.asin}\n{encode_product(product)}".encode(), db=by_row, append=True)
        writer.put(product.asin.encode(), key, db=by_asin)
    writer.commit()
    environment.sync(True)
    environment.close()


def open_lmdb(path: Path) -> Opened:
    """Open both maps without locks; one transaction serves all reads."""
    environment = lmdb.open(str(path), readonly=True, lock=False, max_dbs=2)
    by_row, by_asin = (environment.open_db(name, create=False) for name in (b"row", b"asin"))
    reader = environment.begin()

    def product(row: int) -> Product:
        asin, _, data = reader.get(row.to_bytes(4, "big"), db=by_row).decode().partition("\n")
        return decode_product(row, asin, data)

    def row_of(asin: str) -> int:
        return int.from_bytes(reader.get(asin.encode(), db=by_asin), "big")

    return Opened(product, row_of)


def write_arrow(path: Path, products: Iterator[Product]) -> None:
    """Write record batches with a column a field, and the ids in ascending order with their numbers."""
    path.mkdir()
    asins: list[str] = []
    with pa.OSFile(str(path / "products.arrow"), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        batch: list[dict[str, Any]] = []
        for product in products:
            asins.append(product.asin)
            options = [{"name": name, "values": values} for name, values in product.options]
            batch.append({**product._asdict(), "options": options})
            if len(batch) == BATCH:
                writer.write_batch(pa.RecordBatch.from_pylist(batch, SCHEMA))
                batch = []
        writer.write_batch(pa.RecordBatch.from_pylist(batch, SCHEMA))
    order = np.argsort(np.array(asins))
    np.save(path / "asins.npy", np.array(asins)[order])
    np.save(path / "rows.npy", order)


def open_arrow(path: Path) -> Opened:
    """Map the batches into memory; a product is one row of each column."""
    reader = pa.ipc.open_file(pa.memory_map(str(path / "products.arrow")))
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    asins, rows = (np.load(path / name, mmap_mode="r") for name in ("asins.npy", "rows.npy"))

    def product(row: int) -> Product:
        batch, place = divmod(row, BATCH)
        fields = [column[place].as_py() for column in batches[batch].columns]
        options = tuple((group["name"], tuple(group["values"])) for group in fields[7])
        lists = {4: tuple(fields[4]), 6: tuple(fields[6]), 7: options, 8: tuple(fields[8])}
        return Product(*(lists.get(number, field) for number, field in enumerate(fields)))

    def row_of(asin: str) -> int:
        return int(rows[np.searchsorted(asins, asin)])

    return Opened(product, row_of)


STORES: dict[str, tuple[Callable[[Path, Iterator[Product]], None], Callable[[Path], Opened]]] = {
    "sqlite": (write_sqlite, open_sqlite),
    "lmdb": (write_lmdb, open_lmdb),
    "arrow": (write_arrow, open_arrow),
}


def private_mb() -> float:
    """Return the memory that only this process uses."""
    rows = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    parts = {row.partition(":")[0]: int(row.split()[1]) for row in rows if row.endswith("kB")}
    return (parts["Private_Clean"] + parts["Private_Dirty"]) / 1024


def read(name: str, path: Path, count: int, reads: int) -> None:
    """Open a store in this process, time random reads, and print what it took."""
    rng = np.random.default_rng(0)
    before = private_mb()
    start = perf_counter()
    store = STORES[name][1](path)
    store.product(count // 2)
    opened = perf_counter() - start
    rounds: dict[str, list[float]] = {"product_us": [], "row_of_us": []}
    for _ in range(3):
        rows = rng.integers(count, size=reads).tolist()
        start = perf_counter()
        asins = [store.product(row).asin for row in rows]
        rounds["product_us"].append((perf_counter() - start) / reads * 1e6)
        start = perf_counter()
        fetched = [store.row_of(asin) for asin in asins]
        rounds["row_of_us"].append((perf_counter() - start) / reads * 1e6)
        assert fetched == rows
    numbers = {key: round(median(values), 2) for key, values in rounds.items()}
    print(json.dumps({"open_ms": round(opened * 1e3, 2), **numbers, "private_mb": round(private_mb() - before, 1)}))


def measured(name: str, path: Path, source: Path, count: int, reads: int) -> dict[str, Any]:
    """Write a store, and read it in a separate process while another one has it open."""
    start = perf_counter()
    STORES[name][0](path, read_products(source))
    seconds = perf_counter() - start
    command = [sys.executable, "-m", "benchmarks.webshop_store", "--read", name, "--at", str(path)]
    command += ["--products", str(count), "--reads", str(reads)]
    # This process maps the pages first, so that those of the second one are shared where the store can share them.
    first = STORES[name][1](path)
    for row in range(count):
        first.product(row)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    size = sum(file.stat().st_blocks * 512 for file in path.iterdir())
    return {"write_seconds": round(seconds, 2), "disk_mb": round(size / 1e6, 1), **json.loads(done.stdout)}


def main() -> None:
    """Compare the stores, and write results/webshop_store.json."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--products", type=int, default=100_000)
    parser.add_argument("--reads", type=int, default=20_000)
    parser.add_argument("--read", choices=STORES, help=argparse.SUPPRESS)
    parser.add_argument("--at", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        read(args.read, args.at, args.products, args.reads)
        return
    with TemporaryDirectory() as folder:
        source = write_catalogue(Path(folder), args.products)[0]
        start = perf_counter()
        few = list(read_products(source, 500))
        parsing = (perf_counter() - start) / len(few) * args.products
        for name, (write, opening) in STORES.items():
            write(Path(folder) / f"check-{name}", iter(few))
            store = opening(Path(folder) / f"check-{name}")
            assert [store.product(product.row) for product in few] == few, name
            assert [store.row_of(product.asin) for product in few] == [product.row for product in few], name
        stores = {}
        for name in STORES:
            place = Path(folder) / name
            stores[name] = measured(name, place, source, args.products, args.reads)
            shutil.rmtree(place)
    versions = {"sqlite": sqlite3.sqlite_version, "lmdb": lmdb.__version__, "pyarrow": pa.__version__}
    numbers = {"products": args.products, "reads": args.reads, "reading_the_files_seconds": round(parsing, 2)}
    write_result("webshop_store", {**numbers, "store_versions": versions, "stores": stores})


if __name__ == "__main__":
    # Reading is a separate process of a measurement.
    main() if "--read" in sys.argv else run_timed(main)
