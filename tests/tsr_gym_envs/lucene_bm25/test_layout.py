import json
import os

import numpy as np
import pytest

from tsr_gym import InvalidCorpus
from tsr_gym_envs.lucene_bm25 import BM25Index
from tsr_gym_envs.lucene_bm25.layout import DTYPES, META

CORPUS = [(f"id{number}", f"some words of passage {number} " + "filler " * (number % 7)) for number in range(300)]


@pytest.fixture
def folder(tmp_path):
    BM25Index.build(CORPUS, tmp_path / "index")
    return tmp_path / "index"


def change(folder, **values):
    meta = json.loads((folder / META).read_text())
    (folder / META).write_text(json.dumps(meta | values))


def test_a_sound_index_is_verified(folder):
    assert len(BM25Index.open(folder, verify=True)) == 300


def test_no_folder_and_a_foreign_folder_are_refused(tmp_path):
    for place in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InvalidCorpus, match="wanted a search index"):
            BM25Index.open(place)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "x", "version": 1}', "null"])
def test_a_damaged_description_is_refused(folder, text):
    (folder / META).write_text(text)
    with pytest.raises(InvalidCorpus):
        BM25Index.open(folder)


@pytest.mark.parametrize(
    "values",
    [{"version": 99}, {"num_passages": 7}, {"num_terms": 2}, {"digest": "zz"}, {"files": {}}, {"k1": "x"}],
)
def test_a_description_that_does_not_fit_is_refused(folder, values):
    change(folder, **values)
    with pytest.raises(InvalidCorpus):
        BM25Index.open(folder)


@pytest.mark.parametrize("name", DTYPES)
def test_a_missing_truncated_or_longer_file_is_refused(folder, name):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data + b"0")
    with pytest.raises(InvalidCorpus, match=name):
        BM25Index.open(folder)
    (folder / name).write_bytes(data[:-1])
    with pytest.raises(InvalidCorpus, match=name):
        BM25Index.open(folder)
    (folder / name).unlink()
    with pytest.raises(InvalidCorpus, match=name):
        BM25Index.open(folder)


@pytest.mark.parametrize("name", DTYPES)
def test_a_changed_byte_is_noticed_by_verification(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(InvalidCorpus, match=f"{name}: is damaged"):
        BM25Index.open(folder, verify=True)


@pytest.mark.parametrize("name", DTYPES)
def test_a_changed_file_is_compared_with_its_checksum_when_the_index_is_opened_next(folder, name):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(InvalidCorpus, match=f"{name}: is damaged"):
        BM25Index.open(folder)
    (folder / name).write_bytes(data)
    assert len(BM25Index.open(folder)) == 300


def test_every_number_of_the_description_is_guarded_by_its_checksum(folder):
    for name, value in {"k1": 0.8, "b": 0.5, "num_filled": 299, "num_tokens": 7, "digest": "00" * 16}.items():
        sound = (folder / META).read_text()
        change(folder, **{name: value})
        with pytest.raises(InvalidCorpus, match="checksum"):
            BM25Index.open(folder)
        (folder / META).write_text(sound)


def test_a_description_of_an_earlier_version_without_a_checksum_is_read(folder):
    meta = json.loads((folder / META).read_text())
    del meta["checksum"]
    (folder / META).write_text(json.dumps(meta))
    assert len(BM25Index.open(folder)) == 300


@pytest.mark.parametrize("name", DTYPES)
def test_searching_a_garbled_index_ends_in_hits_or_an_error(folder, name):
    rng = np.random.default_rng(0)
    stat = (folder / name).stat()
    queries = [f"words passage {number} filler" for number in range(0, 300, 20)]
    for _ in range(20):
        (folder / name).write_bytes(rng.bytes(stat.st_size))
        # As it was when it was verified, as far as anybody can see.
        os.utime(folder / name, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        index = BM25Index.open(folder)
        try:
            found = index.search(queries, 10)
        except InvalidCorpus:
            continue
        assert all(len(hits) <= 10 for hits in found)


def test_the_arrays_cannot_be_written(folder):
    arrays = BM25Index.open(folder)._arrays
    assert not any(array.flags.writeable for array in arrays)
