"""Catalogues: opened where they are, imported or generated when they are first used."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files as package_files
from pathlib import Path
from tempfile import TemporaryDirectory

from tsr_gym import ConfigError, InvalidCatalogue, InvalidCorpus
from tsr_gym.files import cache_home, locked
from tsr_gym_envs.lucene_bm25 import BM25Index
from tsr_gym_envs.lucene_bm25.layout import VERSION as INDEX_VERSION
from tsr_gym_envs.webshop.catalogue.importing import LOCK, Progress, write_store
from tsr_gym_envs.webshop.catalogue.original_files import OriginalFiles, find_files
from tsr_gym_envs.webshop.catalogue.store import FORMAT, INDEX, Catalogue, is_store, open_store

EMBEDDED_PRODUCTS = 1000


def open_catalogue(where: str | Path | None = None, *, num_products: int | None = None) -> Catalogue:
    """Return a catalogue.

    Args:
        where: The folder of an imported catalogue, or a folder with the original's files, which are imported at first
            use into the cache (`tsr_gym.files`). None stands for generated products.
        num_products: Only the first so many items of the original's list, or so many generated products (1000 where it
            is None).

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
    """Import the original's files into a folder, which holds what it held before until all is done.

    Args:
        files: Their folder, or the files themselves.
        out: The folder of the store; a store that is there is replaced.
        num_products: Read the first so many items of the list; None reads all.
        with_nouns: Store the nouns of the titles, where a spaCy model is installed.
        progress: Called with a stage, what is done of it, and what there is.

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
    """Return what changes with the generator, so that nobody shops in what an earlier one made."""
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
    """Return the catalogue of a folder of the cache; where there is none, one process builds it and others wait."""
    found = _intact(folder)
    if found is not None:
        return found
    with locked(folder / LOCK):
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
        # What is in the cache can be built again.
        return None
    return catalogue


def _key(sources: OriginalFiles, num_products: int | None) -> str:
    """Return what changes with the files that a catalogue is made from."""
    parts = [
        (str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in sources if path is not None
    ]
    return blake2b(repr((FORMAT, INDEX_VERSION, num_products, parts)).encode(), digest_size=12).hexdigest()
