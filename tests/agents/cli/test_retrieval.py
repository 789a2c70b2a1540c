"""`tsr retrieval`: a corpus becomes an index, and an index a server."""

import os
import signal
import subprocess
import sys

import httpx
import pytest

from tests.conftest import ROOT
from tests.tsr_gym_envs.retrieval_qa.fakes import ROWS, served, write_rows
from tsr_gym.agents import cli
from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever


@pytest.fixture
def corpus(tmp_path):
    return write_rows(tmp_path / "corpus.jsonl")


def test_a_corpus_is_indexed_and_indexed_again(tmp_path, corpus, capsys):
    out = tmp_path / "index"
    for rows in (ROWS, ROWS[:2]):
        write_rows(corpus, rows)
        assert cli.main(["retrieval", "index", str(corpus), "--out", str(out)]) == 0
        assert capsys.readouterr().out == f"{out}: {len(rows)} passages\n"
    corpus.unlink()
    assert [passage.id for passage in BM25Retriever(out).retrieve(["deep"], 3)[0]] == ["sea"]


def test_a_link_leaves_the_text_where_it_is(tmp_path, corpus):
    assert cli.main(["retrieval", "index", str(corpus), "--out", str(tmp_path / "index"), "--link"]) == 0
    assert not (tmp_path / "index" / "passages.jsonl").exists()
    assert len(BM25Retriever(tmp_path / "index").retrieve(["blue"], 3)[0]) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "x"}', "corpus.jsonl:5: "),
        ('{"id": "sea", "contents": "again"}', "corpus.jsonl:5: wanted ids that differ"),
    ],
)
def test_a_bad_row_is_named_and_an_old_index_stays(tmp_path, corpus, capsys, line, message):
    out = tmp_path / "index"
    cli.main(["retrieval", "index", str(corpus), "--out", str(out)])
    with open(corpus, "a") as file:
        file.write(line)
    assert cli.main(["retrieval", "index", str(corpus), "--out", str(out)]) == 1
    assert message in capsys.readouterr().err
    assert len(BM25Retriever(out).retrieve(["blue"], 3)[0]) == 3


def test_something_else_is_never_replaced(tmp_path, corpus, capsys):
    (tmp_path / "notes.txt").touch()
    assert cli.main(["retrieval", "index", str(corpus), "--out", str(tmp_path)]) == 2
    assert "choose another place" in capsys.readouterr().err
    assert (tmp_path / "notes.txt").exists()


def test_an_index_is_served_until_asked_to_stop(tmp_path, corpus):
    cli.main(["retrieval", "index", str(corpus), "--out", str(tmp_path / "index")])
    with served(tmp_path / "index", "--port", "0", "--topk", "1", "--max-topk", "2") as (server, url):
        assert url.startswith("http://127.0.0.1:")
        answer = httpx.post(url, json={"query": "blue"})
        assert [len(hits) for hits in answer.json()["result"]] == [1]
        assert httpx.post(url, json={"query": "blue", "topk": 3}).status_code == 422
        server.send_signal(signal.SIGINT)
        # A shell that runs the tests in the background ignores the signal, and the children inherit that.
        assert server.wait(timeout=30) == (0 if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else 130)


@pytest.mark.parametrize("name", ["bm25/words", "passages.jsonl"])
def test_a_damaged_index_is_not_served_even_where_its_files_look_as_before(tmp_path, corpus, name):
    cli.main(["retrieval", "index", str(corpus), "--out", str(tmp_path / "index")])
    BM25Retriever(tmp_path / "index")
    file = tmp_path / "index" / name
    data, stat = file.read_bytes(), file.stat()
    file.write_bytes(data.replace(b"blue", b"glue") if name == "passages.jsonl" else bytes([data[0] ^ 1]) + data[1:])
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    command = ["-m", "tsr_gym", "retrieval", "serve", "--index", str(tmp_path / "index"), "--port", "0"]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "damaged" in done.stderr
    assert str(file) in done.stderr


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--index", "{tmp}/nowhere"], 2, "there is none"),
        (["--index", "{tmp}/index", "--host", "192.0.2.1"], 1, "annot assign"),
    ],
)
def test_what_cannot_be_served_is_said(tmp_path, corpus, options, status, message):
    cli.main(["retrieval", "index", str(corpus), "--out", str(tmp_path / "index")])
    command = [option.format(tmp=tmp_path) for option in ["-m", "tsr_gym", "retrieval", "serve", *options]]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == status
    assert message in done.stderr
