"""Folders that are absent or complete, whatever happens while they are written."""

import os
import sqlite3
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tsr_gym import ConfigError
from tsr_gym_envs.whole_folder import cached, locked, write_whole

MARKER = "marker"


def filled_with(text):
    def write(folder):
        (folder / "text").write_text(text)
        (folder / MARKER).touch()

    return write


def broken(folder):
    (folder / "text").write_text("half")
    raise OSError("disk full")


def names_in(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_a_folder_appears_whole_and_is_replaced_whole(tmp_path):
    out = tmp_path / "deep" / "out"
    for text in ("first", "second"):
        write_whole(out, MARKER, filled_with(text))
        assert (out / "text").read_text() == text
        assert names_in(out.parent) == ["out"]


@pytest.mark.parametrize("existed", [False, True])
def test_a_failure_leaves_what_was_there_before_and_nothing_else(tmp_path, existed):
    out = tmp_path / "out"
    if existed:
        write_whole(out, MARKER, filled_with("before"))
    with pytest.raises(OSError, match="disk full"):
        write_whole(out, MARKER, broken)
    assert names_in(tmp_path) == (["out"] if existed else [])
    assert not existed or (out / "text").read_text() == "before"
    write_whole(out, MARKER, filled_with("after"))
    assert (out / "text").read_text() == "after"


def test_a_folder_of_another_kind_is_never_replaced(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").touch()
    with pytest.raises(ConfigError, match="choose another place"):
        write_whole(tmp_path / "photos", MARKER, filled_with("x"))
    assert (tmp_path / "photos" / "cat.png").exists()


WRITE_SLOWLY = """
import time
from pathlib import Path
from tsr_gym_envs.whole_folder import write_whole

def write(folder):
    (folder / "text").write_text("killed")
    print("writing", flush=True)
    time.sleep(60)

write_whole(Path({out!r}), "marker", write)
"""


def test_a_run_that_was_killed_leaves_the_old_folder_and_can_be_run_again(tmp_path):
    out = tmp_path / "out"
    write_whole(out, MARKER, filled_with("before"))
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_SLOWLY.format(out=str(out))], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout.readline() == "writing\n"
        run.kill()
    assert (out / "text").read_text() == "before"
    assert [name.rpartition(".")[2] for name in names_in(tmp_path)] == ["partial", "out"]
    write_whole(out, MARKER, filled_with("after"))
    assert (out / "text").read_text() == "after"
    assert names_in(tmp_path) == ["out"]


def test_a_run_that_was_killed_between_its_two_renames_loses_nothing(tmp_path):
    out = tmp_path / "out"
    write_whole(out, MARKER, filled_with("before"))
    os.replace(out, tmp_path / ".out.0.before")
    with pytest.raises(OSError, match="disk full"):
        write_whole(out, MARKER, broken)
    assert (out / "text").read_text() == "before"


def test_what_is_made_of_a_file_is_made_once_until_the_file_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "source.txt"
    source.write_text("one")
    made = []

    def write(folder):
        made.append(source.read_text())
        (folder / MARKER).touch()

    first = cached(source, "kind", MARKER, write)
    assert cached(source, "kind", MARKER, write) == first
    assert first.is_relative_to(tmp_path / "cache" / "retrieval" / "kind")
    source.write_text("three")
    assert cached(source, "kind", MARKER, write) != first
    assert made == ["one", "three"]


COUNT = """
import sys, time
from pathlib import Path
from tsr_gym_envs.whole_folder import cached

def write(folder):
    with open({log!r}, "a") as log:
        log.write("made ")
    time.sleep(0.3)
    (folder / "marker").touch()

print(cached(Path({source!r}), "kind", "marker", write))
"""


def test_of_several_processes_one_writes_and_the_others_wait(tmp_path, monkeypatch):
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    source, log = tmp_path / "source.txt", tmp_path / "log"
    source.touch()
    code = COUNT.format(source=str(source), log=str(log))
    runs = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    shown = [run.communicate(timeout=60)[0] for run in runs]
    assert len(set(shown)) == 1
    assert shown[0].startswith(str(tmp_path))
    assert log.read_text() == "made "


def test_a_lock_ends_with_its_process(tmp_path):
    code = (
        "import sys; from pathlib import Path; from tsr_gym_envs.whole_folder import locked\n"
        f"with locked(Path({str(tmp_path / 'a.lock')!r})): print('mine', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "mine\n"
    probe = sqlite3.connect(tmp_path / "a.lock", timeout=0, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        probe.execute("BEGIN EXCLUSIVE")
    probe.close()
    holder.kill()
    holder.communicate()
    with locked(tmp_path / "a.lock"):
        pass
