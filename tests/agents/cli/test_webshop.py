"""`tsr webshop`: catalogues made and imported from the command line."""

import json
import os
import re
import signal
import subprocess
import sys
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from tests.conftest import ROOT
from tests.tsr_gym_envs.webshop.shops import item, write_files
from tsr_gym.agents import cli
from tsr_gym_envs.webshop.catalogue.opening import open_catalogue


def test_files_are_imported_and_the_progress_is_shown(capsys, tmp_path):
    files = write_files(tmp_path / "in", [item(1), item(2)])
    out = tmp_path / "out"
    assert cli.main(["webshop", "import", str(files), "--out", str(out)]) == 0
    shown = capsys.readouterr()
    catalogue = open_catalogue(out)
    assert shown.out == f"{out}: 2 products, digest {catalogue.digest}\n"
    # Without a terminal, a line a tenth.
    for stage in ("attributes", "annotations", "products"):
        assert f"{stage}: 100 %" in shown.err


def test_files_may_be_named_one_by_one_and_cut(capsys, tmp_path):
    files = write_files(tmp_path / "in", [item(1), item(2), item(3)])
    named = [str(files / name) for name in ("items_shuffle.json", "items_ins_v2.json")]
    command = ["webshop", "import", *named, "--out", str(tmp_path / "out"), "--num-products", "2", "--no-nouns"]
    assert cli.main(command) == 0
    assert "2 products" in capsys.readouterr().out
    assert len(open_catalogue(tmp_path / "out")) == 2


def test_a_generated_catalogue_is_a_store_or_files_or_both(capsys, tmp_path):
    files, out = tmp_path / "files", tmp_path / "out"
    command = ["webshop", "generate", "--products", "40", "--seed", "3"]
    assert cli.main([*command, "--files", str(files), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"files: 40 products as JSON files\n.*out: 40 products, digest [0-9a-f]{32}\n", shown)
    records = json.loads((files / "items_shuffle.json").read_text(encoding="utf-8"))
    catalogue = open_catalogue(out)
    assert [record["asin"] for record in records] == [catalogue.product(row).asin for row in range(40)]
    again = tmp_path / "again"
    assert cli.main([*command, "--out", str(again)]) == 0
    assert open_catalogue(again).digest == catalogue.digest
    assert cli.main(["webshop", "generate", "--products", "40", "--seed", "4", "--out", str(again)]) == 0
    assert open_catalogue(again).digest != catalogue.digest


def test_a_shop_is_served_until_it_is_stopped(tmp_path):
    files = write_files(tmp_path / "in", [item(1), item(2)])
    command = [sys.executable, "-m", "tsr_gym", "webshop", "serve", "--catalogue", str(files), "--port", "0"]
    environment = {**os.environ, "TSR_GYM_CACHE": str(tmp_path / "cache")}
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        line = server.stdout.readline()
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/: 2 products, 4 goals\n", line)
        with build_opener(HTTPCookieProcessor()).open(found[1], timeout=30) as answer:
            assert "Find me soft shirts" in answer.read().decode()
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
    assert server.returncode in (0, 130, -signal.SIGINT)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["--env-set", "colour=1"], "colour"),
        (["--env-set", "max_actions_per_turn=2"], "use max_actions_per_turn=1"),
        (["--goal", "99"], "99"),
    ],
)
def test_a_shop_that_cannot_be_is_refused(capsys, tmp_path, monkeypatch, settings, message):
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    files = write_files(tmp_path / "in", [item(1)])
    assert cli.main(["webshop", "serve", "--catalogue", str(files), *settings]) == 2
    assert message in capsys.readouterr().err
