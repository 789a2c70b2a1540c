"""`tsr view`: a page on this machine alone, and one HTML file."""

import http.client
import json
import socket
from urllib.parse import urlsplit

import pytest

from tests.agents.reports.view.trees import small_tree
from tsr_gym.agents import cli
from tsr_gym.agents.reports.view.server import LOOPBACK, viewing
from tsr_gym.agents.reports.view.site import Site


@pytest.fixture
def tree_file(tmp_path):
    small_tree().save(tmp_path / "tree.jsonl")
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "tree.jsonl"


@pytest.fixture
def ask(tree_file):
    """A function that asks the server for a path, sent as it is written."""
    with viewing(Site([tree_file])) as url:

        def asked(path, method="GET", **headers):
            connection = http.client.HTTPConnection(LOOPBACK, urlsplit(url).port, timeout=20)
            connection.putrequest(method, path, skip_host="Host" in headers)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

        yield asked


def test_a_page_its_files_and_its_data_are_served(ask):
    status, headers, body = ask("/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b'<script src="page/main.js">' in body
    assert ask("/page/view.css")[1]["Content-Type"].startswith("text/css")
    status, headers, body = ask("/data/tree/tree")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body)["label"] == ["start", "left", "right", "up", "down", "up"]
    assert json.loads(ask("/data/node/3/tree")[2])["answer"] == "up"


def test_the_page_may_load_nothing_but_what_it_was_served_with(ask):
    policy = ask("/")[1]["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/data/",
        "/data/tree/other",
        "/data/node/6/tree",
        "/data/node/-1/tree",
        "/data/node/x/tree",
        "/data/summaries/x",
        "/data/summaries/" + "9" * 5000,
        "/data/node/" + "9" * 5000 + "/tree",
        "/page/",
        "/page/../server.py",
        "/page/%2e%2e/server.py",
        "/page//etc/passwd",
        "/data/tree/../secret.txt",
        "/data/tree/%2e%2e%2fsecret.txt",
        "/data/tree//etc/passwd",
        "/../../../../etc/passwd",
    ],
)
def test_what_is_not_there_is_answered_404_and_no_path_leads_out(ask, path):
    status, _, body = ask(path)
    assert status == 404
    assert set(json.loads(body)) == {"error"}
    assert b"secret" not in body.replace(b"secret.txt", b"")


def test_a_damaged_tree_is_refused_and_one_that_was_written_anew_is_read_anew(ask, tree_file):
    assert len(json.loads(ask("/data/tree/tree")[2])["parent"]) == 6
    tree_file.write_text("\n".join(tree_file.read_text().splitlines()[:3]))
    assert len(json.loads(ask("/data/tree/tree")[2])["parent"]) == 2
    tree_file.write_text("{}")
    status, _, body = ask("/data/tree/tree")
    assert status == 422
    assert "wanted a 'tsr-gym tree'" in json.loads(body)["error"]


def test_pages_of_others_read_nothing_and_nothing_can_be_sent(ask, tree_file):
    # A name of theirs that leads to this machine comes with the request.
    assert ask("/data/overview", Host="evil.example:80")[0] == 403
    assert ask("/data/overview", Host="localhost:1")[0] == 200
    assert ask("/data/overview", "POST", **{"Content-Length": "0"})[0] == 501
    with viewing(Site([tree_file])) as url:
        assert urlsplit(url).hostname == "127.0.0.1"


def test_the_file_is_written_and_its_size_told(capsys, tree_file, tmp_path):
    out = tmp_path / "page.html"
    assert cli.main(["view", str(tree_file), "--export", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 1 tree, {out.stat().st_size / 1e6:.1f} MB\n"


def test_a_port_that_is_taken_is_named(capsys, tree_file):
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["view", str(tree_file), "--port", str(port), "--no-open"]) == 2
    assert f"port {port} cannot be listened at" in capsys.readouterr().err
