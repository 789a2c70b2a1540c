"""Corpora on disk, and the embedded retriever over them."""

import json
import os
import pickle
import shutil
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import run_python
from tsr_gym import ConfigError, InvalidCorpus, MissingExtra
from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever
from tsr_gym_envs.retrieval_qa.contract import Passage
from tsr_gym_envs.retrieval_qa.corpus import (
    build_index,
    contents_of,
    open_corpus,
    parse_row,
    split_contents,
    write_corpus,
)
from tsr_gym_envs.retrieval_qa.dense_retriever import DenseRetriever, build_dense_index

ROWS = [
    {"id": "0", "contents": '"Oslo"\nOslo is the capital of Norway.', "source": "extra keys are let alone"},
    {"id": "b/1", "title": 'The "Fram"', "text": "A ship.\nIt was built in 1892."},
    {"id": 7, "contents": "No title here"},
    {"id": "ø", "title": "", "text": "Nor here: 東京\u2028."},
]
WANTED = [
    Passage("0", "Oslo", "Oslo is the capital of Norway."),
    Passage("b/1", 'The "Fram"', "A ship.\nIt was built in 1892."),
    Passage("7", "", "No title here"),
    Passage("ø", "", "Nor here: 東京\u2028."),
]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))


def written(path, rows, between="\n", start=b"", end="\n"):
    text = between.join(row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_bytes(start + (text + end).encode())
    return path


@pytest.mark.parametrize(
    "form",
    [
        {}, {"end": ""}, {"between": "\r\n", "end": "\r\n"}, {"between": "\n\n  \n", "end": "\n\n\n"},
        {"start": b"\xef\xbb\xbf"}, {"start": b"\n\n"},
    ],
    ids=["plain", "last line open", "crlf", "blank lines", "byte order mark", "blank first"],
)  # fmt: skip
@pytest.mark.parametrize("how", ["jsonl", "linked", "copied"])
def test_passages_are_found_by_number_and_by_id(tmp_path, form, how):
    path = written(tmp_path / "corpus.jsonl", ROWS, **form)
    if how != "jsonl":
        folder = tmp_path / "folder"
        folder.mkdir()
        write_corpus(path, folder, link=how == "linked")
        path = folder
    corpus = open_corpus(path)
    assert len(corpus) == 4
    assert [corpus.passage(number) for number in range(4)] == WANTED
    assert [corpus.number_of(passage.id) for passage in WANTED] == [0, 1, 2, 3]
    assert [row.id for row in corpus.rows()] == [passage.id for passage in WANTED]
    assert corpus.number_of("1") is None
    assert corpus.passage(2, 0.5).score == 0.5
    for number in (-1, 4):
        with pytest.raises(IndexError, match="wanted a passage from 0 to 3"):
            corpus.row(number)


def test_every_real_passage_comes_back_as_it_is_written(shared):
    path = shared / "data" / "retrieval" / "mini_corpus.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    corpus = open_corpus(path)
    assert len(corpus) == len(rows) == 19_863
    assert [tuple(row) for row in corpus.rows()] == [(row["id"], row["contents"]) for row in rows]
    for number in range(0, len(rows), 97):
        assert contents_of(corpus.passage(number)) == rows[number]["contents"]
        assert corpus.number_of(rows[number]["id"]) == number


@given(st.text())
def test_contents_are_split_into_title_and_text_without_loss(contents):
    for whole in (contents, f'"{contents}', f'"{contents}"', f'"{contents}"\n{contents}', f'""\n{contents}'):
        assert contents_of(Passage("0", *split_contents(whole))) == whole


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"Oslo"\nA city.', "Oslo", "A city."), ('"The "Fram""\nA ship.\nBuilt.', 'The "Fram"', "A ship.\nBuilt."),
        ('"Oslo"', "", '"Oslo"'), ("Oslo\nA city.", "", "Oslo\nA city."), ('""\nA city.', "", '""\nA city.'),
        ('"\nA city.', "", '"\nA city.'), ("", "", ""),
    ],
)  # fmt: skip
def test_a_title_is_a_first_line_in_quotation_marks(contents, title, text):
    assert split_contents(contents) == (title, text)


@pytest.mark.parametrize(
    "line",
    [
        *("", "{", "[]", "null", "{}", '{"id": "1"}', '{"contents": "x"}', '{"id": "", "contents": "x"}'),
        *('{"id": null, "contents": "x"}', '{"id": true, "contents": "x"}', '{"id": 1.5, "contents": "x"}'),
        '{"id": "1", "contents": null}', '{"id": "1", "contents": ["x"]}', '{"id": "1", "title": "x"}',
        '{"id": "1", "title": 1, "text": "x"}', '{"id": "1", "contents": "\\ud800"}',
        '{"id": "\\udfff", "contents": "x"}', "[" * 100_000,
    ],
    ids=range(18),
)  # fmt: skip
def test_a_malformed_row_is_named_by_file_and_line(tmp_path, line):
    with pytest.raises(InvalidCorpus, match="here: "):
        parse_row(line.encode(), "here")
    if line:
        path = written(tmp_path / "bad.jsonl", [ROWS[0], "", line, ROWS[1]])
        with pytest.raises(InvalidCorpus, match=r"bad\.jsonl:3: "):
            open_corpus(path)


def test_bytes_that_are_no_text_and_equal_ids_are_named_by_file_and_line(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"id": "1", "contents": "fine"}\n{"id": "2", "contents": "\xff"}\n')
    with pytest.raises(InvalidCorpus, match=r"bad\.jsonl:2: "):
        open_corpus(path)
    path = written(tmp_path / "twins.jsonl", [ROWS[0], "", ROWS[1], ROWS[2], {"id": "7", "contents": "again"}])
    with pytest.raises(InvalidCorpus, match=r"twins\.jsonl:5: wanted ids that differ, '7' is also that of 4"):
        build_index(path, tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_ids_whose_keys_collide_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("tsr_gym_envs.retrieval_qa.corpus._key", lambda name: len(name) % 2)
    rows = [{"id": f"{number:02}", "contents": "x"} for number in range(20)]
    corpus = open_corpus(written(tmp_path / "corpus.jsonl", rows))
    assert [corpus.number_of(row["id"]) for row in rows] == list(range(20))
    assert corpus.number_of("20") is None
    with pytest.raises(InvalidCorpus, match=r"twins\.jsonl:21: .* is also that of 8"):
        open_corpus(written(tmp_path / "twins.jsonl", [*rows, {"id": "07", "contents": "x"}]))


def test_an_index_folder_needs_its_own_copy_or_an_unchanged_link(tmp_path):
    path = written(tmp_path / "corpus.jsonl", ROWS)
    build_index(path, tmp_path / "index")
    path.unlink()
    shutil.move(tmp_path / "index", tmp_path / "elsewhere")
    assert open_corpus(tmp_path / "elsewhere").passage(1) == WANTED[1]
    path = written(tmp_path / "corpus.jsonl", ROWS)
    build_index(path, tmp_path / "index", link=True)
    assert not (tmp_path / "index" / "passages.jsonl").exists()
    assert open_corpus(tmp_path / "index").passage(0) == WANTED[0]
    path.write_bytes(path.read_bytes().replace(b"Oslo", b"Rome"))
    with pytest.raises(InvalidCorpus, match="changed since"):
        open_corpus(tmp_path / "index")
    path.unlink()
    with pytest.raises(InvalidCorpus, match="the passages are gone"):
        open_corpus(tmp_path / "index")


@pytest.mark.parametrize(
    ("place", "actual"),
    [
        ("nothing", "wanted a jsonl file .* got nothing there"),
        ("folder", "wanted a jsonl file .* got a folder without corpus.json: make one with `tsr"),
        *((name, ".* the file has none") for name in ("empty", "blank")),
    ],
)
def test_a_place_without_a_corpus_is_refused(tmp_path, place, actual):
    (tmp_path / "folder").mkdir()
    for name, text in (("empty", ""), ("blank", "\n \n")):
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidCorpus, match=f"{place}: {actual}"):
        open_corpus(tmp_path / place)


@pytest.mark.parametrize("file", ["corpus.json", "offsets.npy", "ids.npy", "passages.jsonl"])
@pytest.mark.parametrize("harm", ["cut", "emptied", "gone", "nonsense", "open"])
def test_a_damaged_index_folder_is_refused(tmp_path, file, harm):
    folder = build_index(written(tmp_path / "corpus.jsonl", ROWS), tmp_path / "index")
    content = (folder / file).read_bytes()
    if harm == "gone":
        (folder / file).unlink()
    else:
        new = {"cut": content[: len(content) // 2], "emptied": b"", "nonsense": b"\x93NUMPY{}" + content[::-1]}
        new["open"] = content.replace(b"}", b" ", 1)
        (folder / file).write_bytes(new[harm])
    with pytest.raises(InvalidCorpus):
        open_corpus(folder)
    # A table of another corpus.
    np.save(folder / "offsets.npy", np.zeros(3, np.uint64))
    with pytest.raises(InvalidCorpus, match=r"wanted \(5,\) of uint64" if file == "offsets.npy" else None):
        open_corpus(folder)


def test_a_file_its_folder_a_copy_and_another_process_are_the_same_retriever(path, tmp_path):
    retriever, other = BM25Retriever(path), BM25Retriever(build_index(path, tmp_path / "index"))
    wanted = retriever.retrieve(["blue sea"], 3)
    assert (other.digest, other.retrieve(["blue sea"], 3)) == (retriever.digest, wanted)
    assert pickle.loads(pickle.dumps(retriever)).retrieve(["blue sea"], 3) == wanted
    code = (
        "from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever\n"
        f"retriever = BM25Retriever({str(path)!r})\n"
        "print(retriever.digest, retriever.retrieve(['blue sea'], 3))"
    )
    assert run_python(code, hash_seed="1") == f"{retriever.digest} {wanted}\n"
    path.write_text(path.read_text().replace("blue.", "blue!"))
    assert BM25Retriever(path).digest != retriever.digest


def test_an_index_is_never_put_in_the_place_of_something_else(tmp_path):
    (tmp_path / "home").mkdir()
    with pytest.raises(ConfigError, match="choose another place"):
        build_index(written(tmp_path / "corpus.jsonl", ROWS), tmp_path / "home")
    index = tmp_path / "index"
    build_index(written(tmp_path / "one.jsonl", ROWS[:2]), index)
    with pytest.raises(InvalidCorpus):
        build_index(written(tmp_path / "bad.jsonl", [*ROWS, "{"]), index)
    assert len(open_corpus(index)) == 2
    build_index(written(tmp_path / "two.jsonl", ROWS), index)
    assert len(open_corpus(index)) == 4


def test_progress_is_told_stage_by_stage(tmp_path, monkeypatch):
    monkeypatch.setattr("tsr_gym_envs.retrieval_qa.corpus.NEWS_EVERY", 2)
    path = written(tmp_path / "corpus.jsonl", ROWS)
    news = []
    build_index(path, tmp_path / "index", lambda *told: news.append(told))
    size = path.stat().st_size
    assert [told for told in news if told[0] == "reading"][-1] == ("reading", size, size)
    assert news[-1] == ("indexing", 4, 4)


def test_a_passage_that_was_damaged_in_place_is_an_error_also_where_nobody_noticed(tmp_path):
    folder = build_index(written(tmp_path / "corpus.jsonl", ROWS), tmp_path / "index")
    assert len(open_corpus(folder)) == len(ROWS)
    text, stat = (folder / "passages.jsonl").read_bytes(), (folder / "passages.jsonl").stat()
    for harm in (text.replace(b'"id": 7', b'"ID": 7'), text.replace(b'"No', b"'No"), text.replace(b"No t", b"No \xff")):
        (folder / "passages.jsonl").write_bytes(harm)
        os.utime(folder / "passages.jsonl", ns=(stat.st_atime_ns, stat.st_mtime_ns))
        with pytest.raises(InvalidCorpus, match="passage 2 is damaged"):
            open_corpus(folder).passage(2)


@pytest.mark.parametrize("name", ["passages.jsonl", "offsets.npy", "ids.npy"])
def test_a_changed_byte_is_refused_when_the_corpus_is_opened_next(tmp_path, name):
    folder = build_index(written(tmp_path / "corpus.jsonl", ROWS), tmp_path / "index")
    assert len(open_corpus(folder)) == len(ROWS)
    data = bytearray((folder / name).read_bytes())
    # A letter of a text, which stays JSON, and a number of a table.
    data[data.index(b"Norway") if name == "passages.jsonl" else -8] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(InvalidCorpus, match=f"{name}: damaged"):
        open_corpus(folder)


def test_a_corpus_that_was_made_before_tables_had_digests_is_read(tmp_path):
    folder = build_index(written(tmp_path / "corpus.jsonl", ROWS), tmp_path / "index")
    about = json.loads((folder / "corpus.json").read_text())
    del about["tables"]
    (folder / "corpus.json").write_text(json.dumps(about))
    assert [open_corpus(folder).passage(number) for number in range(len(ROWS))] == WANTED


FACTS = [
    {"id": "sky", "contents": '"Sky"\nThe sky is blue.'},
    {"id": "sea", "contents": '"Sea"\nThe sea is blue, and the sea is deep.'},
    {"id": "wood", "title": "Wood", "text": "A wood of pines."},
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in FACTS))
    return path


def test_passages_come_whole_and_best_first(path):
    found = BM25Retriever(path).retrieve(["deep seas", "blue", "pine woods", "nothing at all", "the is a"], 3)
    # Fewer where fewer match: one passage is about pines, none about nothing.
    assert [[passage.id for passage in passages] for passages in found] == [["sea"], ["sky", "sea"], ["wood"], [], []]
    assert found[2][0][:3] == ("wood", "Wood", "A wood of pines.")
    assert found[1][0].score > found[1][1].score > 0
    assert BM25Retriever(path).retrieve([], 3) == []
    assert len(BM25Retriever(path).retrieve(["blue"], 1)[0]) == 1


def test_order_and_scores_on_the_real_corpus_are_pyserinis(mini_index, golden):
    retriever = BM25Retriever(mini_index)
    rows = golden("retrieval/pyserini_hits.jsonl")[::10]
    for row, passages in zip(rows, retriever.retrieve([row["query"] for row in rows], 10), strict=True):
        assert [passage.id for passage in passages] == [name for name, _ in row["hits"]]
        assert [passage.score for passage in passages] == pytest.approx([score for _, score in row["hits"]], abs=1e-6)
        assert all(isinstance(passage, Passage) and passage.title for passage in passages)


def test_text_and_index_that_do_not_belong_together_are_refused(path, tmp_path):
    folder = build_index(path, tmp_path / "index")
    path.write_text(json.dumps(FACTS[0]))
    other = build_index(path, tmp_path / "other")
    (folder / "bm25").rename(tmp_path / "bm25")
    with pytest.raises(InvalidCorpus):
        BM25Retriever(folder)
    (other / "bm25").rename(folder / "bm25")
    with pytest.raises(InvalidCorpus, match="3 passages but an index of 1"):
        BM25Retriever(folder)


def test_threads_do_not_get_into_each_others_way(mini_index, golden):
    retriever = BM25Retriever(mini_index)
    queries = [row["query"] for row in golden("retrieval/pyserini_hits.jsonl")[:120]]
    wanted = retriever.retrieve(queries, 5)
    found = {}

    def search(start):
        for number in range(start, len(queries), 8):
            found[number] = retriever.retrieve([queries[number]], 5)[0]

    threads = [Thread(target=search, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(len(queries))] == wanted


@pytest.mark.parametrize("query", ["\ud800", "\x00", "sky\udfff", "🙂" * 500, "sea " * 5000, "'" * 1000])
def test_no_query_is_an_error(path, query):
    assert len(BM25Retriever(path).retrieve([query], 3)) == 1


@pytest.mark.parametrize("missing", ["sentence_transformers", "faiss"])
def test_what_is_missing_is_named_with_its_extra(tmp_path, monkeypatch, missing):
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda name: None if name == missing else object())
    for use in (lambda: DenseRetriever(tmp_path), lambda: build_dense_index(tmp_path, tmp_path, "encoder")):
        with pytest.raises(MissingExtra, match=rf"{missing}.*tsr-gym\[dense\]"):
            use()
