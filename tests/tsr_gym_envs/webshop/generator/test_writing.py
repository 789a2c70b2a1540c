"""Generated catalogues as files: what the original's loader and the importer read."""

import json

from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.generator import generate, write_catalogue


def test_the_three_files_hold_the_records(tmp_path):
    paths = write_catalogue(tmp_path / "new" / "folder", 120, 3)
    records = list(generate(120, 3))
    items, entries, notes = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    assert [path.name for path in paths] == ["items_shuffle.json", "items_ins_v2.json", "items_human_ins.json"]
    assert items == [record.item for record in records]
    assert entries == {record.item["asin"]: record.entry for record in records}
    assert notes == {record.item["asin"]: record.annotations for record in records if record.annotations}


def test_files_that_are_there_are_replaced(tmp_path):
    write_catalogue(tmp_path, 50, 0)
    items, _, _ = write_catalogue(tmp_path, 0, 0)
    assert json.loads(items.read_text(encoding="utf-8")) == []
    assert all(
        json.loads((tmp_path / name).read_text()) == {} for name in ("items_ins_v2.json", "items_human_ins.json")
    )


def test_progress_is_told_every_thousand_products(tmp_path):
    told = []
    write_catalogue(tmp_path, 2500, 0, progress=lambda done, total: told.append((done, total)))
    assert told == [(1000, 2500), (2000, 2500)]


def test_the_importer_reads_every_product(tmp_path):
    write_catalogue(tmp_path / "files", 300, 5)
    catalogue = import_catalogue(tmp_path / "files", tmp_path / "store", with_nouns=False)
    records = list(generate(300, 5))
    assert len(catalogue) == 300
    for row, record in enumerate(records):
        product = catalogue.product(row)
        assert (product.asin, product.title) == (record.item["asin"], record.item["name"])
        assert product.attributes == tuple(record.entry["attributes"])
        assert (catalogue.instruction(row) is not None) == ("instruction" in record.entry)
        assert len(catalogue.annotations(row)) == len(record.annotations)
