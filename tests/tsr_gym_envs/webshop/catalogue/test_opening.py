"""Catalogues as they are asked for: stores, folders of files, and the embedded one."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.tsr_gym_envs.webshop.small_files import item, write_files
from tsr_gym import ConfigError, InvalidCatalogue
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue, open_catalogue


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of the test's own."""
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "webshop"


def test_files_are_imported_once_and_again_when_they_change(tmp_path, cache):
    files = write_files(tmp_path / "in", [item(1), item(2)])
    first = open_catalogue(files)
    assert first.path.parent == cache
    assert open_catalogue(str(files)) is first
    assert sorted(path.name for path in files.iterdir()) == [
        "items_human_ins.json",
        "items_ins_v2.json",
        "items_shuffle.json",
    ]
    write_files(files, [item(1), item(2), item(3)])
    assert len(open_catalogue(files)) == 3
    assert len(list(cache.iterdir())) == 2


def test_the_first_products_are_a_catalogue_of_their_own(tmp_path):
    files = write_files(tmp_path / "in", [item(1), item(2), item(3)])
    assert (len(open_catalogue(files, num_products=2)), len(open_catalogue(files))) == (2, 3)


def test_an_imported_catalogue_is_opened_where_it_is(tmp_path, cache):
    store = import_catalogue(write_files(tmp_path / "in", [item(1), item(2)]), tmp_path / "out")
    assert open_catalogue(tmp_path / "out") is store
    assert open_catalogue(tmp_path / "out", num_products=2) is store
    assert not cache.exists()
    with pytest.raises(ConfigError, match=r"imported with 2 products, .* --num-products 1"):
        open_catalogue(tmp_path / "out", num_products=1)


def test_a_damaged_store_in_the_cache_is_built_again(tmp_path, cache):
    files = write_files(tmp_path / "in", [item(1)])
    open_catalogue(files)
    (folder,) = cache.iterdir()
    (folder / "store.json").write_text("{")
    assert open_catalogue(files).product(0).title == "Soft Shirt"


def test_impossible_wishes_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="wanted num_products >= 1 or None, got 0"):
        open_catalogue(tmp_path, num_products=0)
    with pytest.raises(InvalidCatalogue, match=r"wanted a file items_shuffle\*\.json"):
        open_catalogue(tmp_path)
    with pytest.raises(InvalidCatalogue, match=r"there is no .*gone"):
        open_catalogue(tmp_path / "gone")


def test_the_embedded_catalogue_is_generated_once(cache):
    catalogue = open_catalogue(num_products=60)
    assert len(catalogue) == 60
    assert open_catalogue(num_products=60) is catalogue
    assert len(list(cache.iterdir())) == 1
    assert open_catalogue(num_products=30).product(0).asin


def test_processes_that_ask_first_at_the_same_time_share_one_catalogue(cache):
    code = "from tsr_gym_envs.webshop.catalogue.opening import open_catalogue; c = open_catalogue(num_products=40)\n"
    code += "print(c.digest, c.meta.data, c.product(39).title)"
    command = [sys.executable, "-c", code]
    children = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) for _ in range(4)
    ]
    outputs = [child.communicate(timeout=100)[0] for child in children]
    assert all(child.returncode == 0 for child in children)
    assert len(set(outputs)) == 1
    (folder,) = cache.iterdir()
    assert len(list(folder.glob("data-*"))) == 1
