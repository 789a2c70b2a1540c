"""Catalogues: stores, folders of files, the embedded one, and imports that are all or nothing."""

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import ROOT, run_python
from tests.tsr_gym_envs.webshop.shops import ANNOTATION, ENTRY, item, write_files
from tsr_gym import ConfigError, InvalidCatalogue, TsrGymError
from tsr_gym_envs.settings import in_split
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue, open_catalogue
from tsr_gym_envs.webshop.catalogue.store import SPLIT_NAMES, open_store, write_meta


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of the test's own."""
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "webshop"


def test_an_imported_catalogue_is_opened_where_it_is(tmp_path, cache):
    store = import_catalogue(write_files(tmp_path / "in", [item(1), item(2)]), tmp_path / "out")
    assert open_catalogue(tmp_path / "out") is store
    assert open_catalogue(tmp_path / "out", num_products=2) is store
    assert not cache.exists()
    with pytest.raises(ConfigError, match=r"imported with 2 products, .* --num-products 1"):
        open_catalogue(tmp_path / "out", num_products=1)


def test_files_are_imported_once_and_again_when_they_change_or_the_store_is_damaged(tmp_path, cache):
    files = write_files(tmp_path / "in", [item(1), item(2)])
    first = open_catalogue(files)
    assert first.path.parent == cache
    assert open_catalogue(str(files)) is first
    names = {path.name for path in files.iterdir()}
    assert names == {"items_human_ins.json", "items_ins_v2.json", "items_shuffle.json"}
    (folder,) = cache.iterdir()
    (folder / "store.json").write_text("{")
    assert open_catalogue(files).product(0).title == "Soft Shirt"
    write_files(files, [item(1), item(2), item(3)])
    assert (len(open_catalogue(files)), len(list(cache.iterdir()))) == (3, 2)
    assert len(open_catalogue(files, num_products=2)) == 2
    with pytest.raises(ConfigError, match="wanted num_products >= 1 or None, got 0"):
        open_catalogue(files, num_products=0)


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


def titles(folder):
    catalogue = open_store(folder)
    return [catalogue.product(row).title for row in range(len(catalogue))]


def data_folders(folder):
    return sorted(path.name for path in folder.glob("data-*"))


def test_everything_of_a_product_comes_through(tmp_path):
    items = [item(1), item(2, pricing="$10$20", name="Hat"), item(3)]
    entries = {"B000000002": ENTRY, "B000000001": {"attributes": ["a", "b"]}}
    catalogue = import_catalogue(
        write_files(tmp_path / "in", items, entries, {"B000000002": [ANNOTATION]}), tmp_path / "out"
    )
    first, hat, unknown = (catalogue.product(row) for row in range(3))
    assert (first.attributes, hat.attributes) == (("a", "b"), ("soft",))
    assert unknown.attributes == ("DUMMY_ATTR",)
    assert catalogue.meta.without_entry == "B000000003"
    assert (catalogue.instruction(0), catalogue.instruction(2)) == (None, None)
    assert catalogue.instruction(1).text == "Find me soft shirts"
    assert [annotation.options for annotation in catalogue.annotations(1)] == [("s",)]
    assert catalogue.annotations(0) == ()
    assert 10 <= catalogue.stored_prices[1] <= 20
    assert catalogue.stored_prices[0] == 12.99
    for row in range(3):
        assert in_split(catalogue.product(row).asin.encode(), SPLIT_NAMES[catalogue.splits[row]])


def test_later_entries_count_annotations_may_be_missing_and_first_products_be_taken(tmp_path):
    folder = write_files(tmp_path / "in", [item(1)])
    twice = '{"B000000001": {"attributes": ["old"]}, "B000000001": {"attributes": ["new"]}}'
    (folder / "items_ins_v2.json").write_text(twice, encoding="utf-8")
    assert import_catalogue(folder, tmp_path / "out").product(0).attributes == ("new",)
    folder = write_files(tmp_path / "in", [item(1)])
    (folder / "items_human_ins.json").unlink()
    assert import_catalogue(folder, tmp_path / "out").annotations(0) == ()
    files = write_files(tmp_path / "in", [item(1), item(1), item(2), item(3)])
    assert len(import_catalogue(files, tmp_path / "out", num_products=3)) == 2
    assert len(import_catalogue(files, tmp_path / "out")) == 3


def test_the_digest_is_that_of_the_content(tmp_path):
    first = import_catalogue(write_files(tmp_path / "a", [item(1), item(2)]), tmp_path / "one")
    same = import_catalogue(write_files(tmp_path / "b", [item(1), item(2)]), tmp_path / "two")
    assert first.digest == same.digest
    changes = {"name": "Other", "pricing": "$13", "customization_options": "", "query": "hats"}
    goals = {"B000000001": {**ENTRY, "instruction": "Find me"}, "B000000002": ENTRY}
    contents = [([item(1), item(2, **{name: value})], None) for name, value in changes.items()]
    for number, (items, entries) in enumerate([*contents, ([item(1), item(2)], goals)]):
        files = write_files(tmp_path / f"c{number}", items, entries)
        assert import_catalogue(files, tmp_path / f"out{number}").digest != first.digest


def test_stores_do_not_depend_on_the_hash_seed(tmp_path):
    files = write_files(tmp_path / "in", [item(number, pricing="$5$50") for number in range(1, 30)])
    code = (
        "from tsr_gym_envs.webshop.catalogue.opening import import_catalogue\n"
        f"c = import_catalogue({str(files)!r}, {str(tmp_path / 'out')!r})\n"
        "print(c.digest, c.stored_prices.tolist(), c.splits.tolist())"
    )
    here = import_catalogue(files, tmp_path / "here")
    assert run_python(code, hash_seed="1") == f"{here.digest} {here.stored_prices.tolist()} {here.splits.tolist()}\n"


@pytest.mark.parametrize("stage", ["attributes", "annotations", "products", "index"])
def test_an_import_that_is_killed_leaves_the_old_catalogue_and_is_simply_run_again(tmp_path, stage):
    out = tmp_path / "out"
    import_catalogue(write_files(tmp_path / "old", [item(1, name="Old")]), out)
    files = write_files(tmp_path / "new", [item(1, name="New"), item(2, name="Newer")])
    code = (
        "import os, signal\n"
        "from tsr_gym_envs.webshop.catalogue.opening import import_catalogue\n"
        f"stop = lambda stage, done, total: os.kill(os.getpid(), signal.SIGKILL) if stage == {stage!r} else None\n"
        f"import_catalogue({str(files)!r}, {str(out)!r}, progress=stop)"
    )
    assert run_python(code, check=False).returncode == -9
    assert (titles(out), len(data_folders(out))) == (["Old"], 2)
    import_catalogue(files, out)
    assert (titles(out), len(data_folders(out))) == (["New", "Newer"], 1)


@pytest.mark.parametrize("cut", [0, 1, 50, -1])
def test_a_file_that_ends_too_early_leaves_the_old_catalogue(tmp_path, cut):
    out = tmp_path / "out"
    import_catalogue(write_files(tmp_path / "old", [item(1, name="Old")]), out)
    files = write_files(tmp_path / "new", [item(number) for number in range(1, 9)])
    path = files / "items_shuffle.json"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InvalidCatalogue, match=r"items_shuffle\.json"):
        import_catalogue(files, out)
    assert (titles(out), len(data_folders(out))) == (["Old"], 1)


def test_empty_lists_and_absurdly_many_combinations_are_refused(tmp_path):
    with pytest.raises(InvalidCatalogue, match="no product in"):
        import_catalogue(write_files(tmp_path / "in", []), tmp_path / "out")
    options = {f"option {name}": [{"value": str(number)} for number in range(50)] for name in range(4)}
    with pytest.raises(InvalidCatalogue, match=r"product B000000001: .* combinations of its 'customization_options'"):
        import_catalogue(write_files(tmp_path / "in", [item(1, customization_options=options)]), tmp_path / "out")


def test_a_full_disk_or_an_interruption_is_no_half_catalogue(tmp_path, monkeypatch):
    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("tsr_gym_envs.webshop.catalogue.opening._write_tasks", full)
    with pytest.raises(TsrGymError, match=r"cannot write the catalogue into .*disk is full"):
        import_catalogue(write_files(tmp_path / "in", [item(1)]), tmp_path / "out")
    assert data_folders(tmp_path / "out") == []


def test_imports_into_one_folder_wait_for_each_other(tmp_path):
    out = tmp_path / "out"
    files = [write_files(tmp_path / f"in{n}", [item(1, name=f"Shirt {n}")] * (n + 1)) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda folder: import_catalogue(folder, out), files))
    assert titles(out)[0] in {f"Shirt {n}" for n in range(4)}
    assert len(data_folders(out)) == 1


def test_nouns_of_titles_are_stored_where_a_model_is_installed(tmp_path, monkeypatch):
    files = write_files(tmp_path / "in", [item(1), item(2, name="Red Hat"), item(3, name="Red Hat")])
    assert import_catalogue(files, tmp_path / "none").title_nouns("Red Hat") is None
    monkeypatch.setattr("tsr_gym_envs.webshop.catalogue.opening.installed_model", lambda: "model")
    monkeypatch.setattr(
        "tsr_gym_envs.webshop.catalogue.opening.tag_nouns",
        lambda titles, model: ((model, title.split()[-1].lower()) for title in titles),
    )
    catalogue = import_catalogue(files, tmp_path / "nouns")
    assert catalogue.meta.nouns == "model"
    assert catalogue.title_nouns("Red Hat") == catalogue.nouns(1) == catalogue.nouns(2) == ("model", "hat")
    assert catalogue.title_nouns("Soft Shirt") == ("model", "shirt")
    assert catalogue.title_nouns("Blue Hat") is None
    assert import_catalogue(files, tmp_path / "without", with_nouns=False).title_nouns("Red Hat") is None


def test_an_interruption_after_the_last_step_keeps_the_new_catalogue(tmp_path, monkeypatch):
    out = tmp_path / "out"
    import_catalogue(write_files(tmp_path / "old", [item(1, name="Old")]), out)

    def interrupted(folder, meta):
        write_meta(folder, meta)
        raise KeyboardInterrupt

    monkeypatch.setattr("tsr_gym_envs.webshop.catalogue.opening.write_meta", interrupted)
    with pytest.raises(KeyboardInterrupt):
        import_catalogue(write_files(tmp_path / "new", [item(1, name="New")]), out)
    assert (titles(out), len(data_folders(out))) == (["New"], 1)


def test_folders_keep_other_files_and_have_the_umasks_permissions(tmp_path):
    out = tmp_path / "out"
    (out / "import.lock").mkdir(parents=True)
    with pytest.raises(TsrGymError, match=r"cannot lock .*import\.lock: .* choose a writable folder"):
        import_catalogue(write_files(tmp_path / "in", [item(1)]), out)
    (out / "import.lock").rmdir()
    (out / "notes.txt").write_text("mine")
    import_catalogue(write_files(tmp_path / "in", [item(1)]), out)
    assert (out / "notes.txt").read_text() == "mine"
    import_catalogue(write_files(tmp_path / "in", [item(1)]), out)
    (data,) = data_folders(out)
    assert (out / data).stat().st_mode & 0o777 == 0o777 & ~umask()


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
