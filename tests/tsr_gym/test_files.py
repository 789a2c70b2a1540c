"""Files and folders are complete or absent, also if the writing code is interrupted at any line."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from tests.conftest import ROOT, killed_at
from tsr_gym import CheckpointError, ConfigError
from tsr_gym.files import MANIFEST, cached, check_folder, locked, write_folder, write_whole


def fill(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / "a.txt").write_text("one")
    (folder / "b.bin").write_bytes(b"\0\1\2" * 1000)


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


WHOLE = sorted(["deep/a.txt", "b.bin", MANIFEST])


def test_a_folder_is_absent_or_whole_wherever_the_writing_was_interrupted(tmp_path):
    write_folder(tmp_path / "000001", fill)
    points = 0
    while killed_at(points + 1, lambda: write_folder(tmp_path / "000002", fill), "tsr_gym/files.py"):
        points += 1
        check_folder(tmp_path / "000001")
        if (tmp_path / "000002").exists():
            check_folder(tmp_path / "000002")
            assert names(tmp_path / "000002") == WHOLE
            (tmp_path / "000002").rename(tmp_path / f"found-{points}")
    assert points > 15
    # The last attempt was not interrupted, and leftovers of the others did not disturb it.
    check_folder(tmp_path / "000002")
    assert names(tmp_path / "000002") == WHOLE
    assert not list(tmp_path.glob(".*"))
    # Some were interrupted after the folder was in place, most before.
    assert 0 < len(list(tmp_path.glob("found-*"))) < points / 2


@pytest.mark.parametrize("kind", [OSError, RuntimeError, ValueError])
def test_any_error_of_the_writing_leaves_nothing_and_names_the_remedy(tmp_path, kind):
    def broken(folder):
        fill(folder)
        raise kind("No space left on device")

    write_folder(tmp_path / "000001", fill)
    with pytest.raises(CheckpointError, match=r"000002 could not be written .*No space left.* untouched: make room"):
        write_folder(tmp_path / "000002", broken)
    assert [path.name for path in tmp_path.iterdir()] == ["000001"]
    check_folder(tmp_path / "000001")


class Together:
    """Two threads in place of two processes: they synchronise at every step, and a failure in one fails in both."""

    def __init__(self):
        self.barrier, self.failed = threading.Barrier(2), []

    def each(self, step):
        try:
            step()
        except CheckpointError as error:
            self.failed.append(error)
        self.barrier.wait(timeout=30)
        failed = self.failed[:1]
        # Neither continues before both have seen the failure.
        self.barrier.wait(timeout=30)
        for error in failed:
            raise error

    def writes(self, path, rank, write):
        with contextlib.suppress(CheckpointError):
            write_folder(path, write, first=lambda step: self.each(step if rank == 0 else lambda: None), each=self.each)

    def write(self, path, writes):
        threads = [
            threading.Thread(target=self.writes, args=(path, rank, write), daemon=True)
            for rank, write in enumerate(writes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive()


def test_several_write_one_folder_together_or_none(tmp_path):
    writes = [lambda folder: (folder / "0").write_text("zero"), lambda folder: (folder / "1").write_text("one")]
    Together().write(tmp_path / "000001", writes)
    check_folder(tmp_path / "000001")
    assert names(tmp_path / "000001") == ["0", "1", MANIFEST]

    def broken(folder):
        raise OSError("No space left on device")

    Together().write(tmp_path / "000002", [fill, broken])
    assert [path.name for path in tmp_path.iterdir()] == ["000001"]


@pytest.mark.parametrize("name", ["b.bin", "deep/a.txt"])
@pytest.mark.parametrize("harm", ["gone", "shorter", "changed"])
def test_a_damaged_file_is_named(tmp_path, name, harm):
    write_folder(tmp_path / "000007", fill)
    file = tmp_path / "000007" / name
    data = file.read_bytes()
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(data[:-1] if harm == "shorter" else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=rf"{name}: missing or damaged: delete 000007 and resume from the one"):
        check_folder(tmp_path / "000007")


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


def test_a_folder_appears_and_is_replaced_whole_and_one_of_another_kind_never(tmp_path):
    out = tmp_path / "deep" / "out"
    for text in ("first", "second"):
        write_whole(out, MARKER, filled_with(text))
        assert ((out / "text").read_text(), names_in(out.parent)) == (text, ["out"])
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").touch()
    with pytest.raises(ConfigError, match="choose another place"):
        write_whole(tmp_path / "photos", MARKER, filled_with("x"))
    assert (tmp_path / "photos" / "cat.png").exists()


def test_a_folder_without_a_sound_list_of_files_is_no_checkpoint(tmp_path):
    write_folder(tmp_path / "000007", fill)
    manifest = tmp_path / "000007" / MANIFEST
    manifest.unlink()
    for text in (None, "", '{"b.bin": ', "[]", "7", "null", '"b.bin"', "[" * 100_000):
        if text is not None:
            manifest.write_text(text)
        with pytest.raises(CheckpointError, match=r"000007: no complete checkpoint .*resume from another one"):
            check_folder(tmp_path / "000007")
    for entry in ('"b.bin": 7', '"b.bin": null', '"deep": "0"', f'"{"x" * 5000}": "0"', '"a\\u0000b": "0"'):
        manifest.write_text(f"{{{entry}}}")
        with pytest.raises(CheckpointError, match="missing or damaged: delete 000007"):
            check_folder(tmp_path / "000007")


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


WRITE_SLOWLY = """
import time
from pathlib import Path
from tsr_gym.files import write_whole

def write(folder):
    (folder / "text").write_text("killed")
    print("writing", flush=True)
    time.sleep(60)

write_whole(Path({out!r}), "marker", write)
"""


def test_a_run_that_was_killed_leaves_the_old_folder_and_loses_nothing(tmp_path):
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
    assert ((out / "text").read_text(), names_in(tmp_path)) == ("after", ["out"])


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

    first = cached(source, "retrieval/kind", MARKER, write)
    assert cached(source, "retrieval/kind", MARKER, write) == first
    assert first.is_relative_to(tmp_path / "cache" / "retrieval" / "kind")
    source.write_text("three")
    assert cached(source, "retrieval/kind", MARKER, write) != first
    assert made == ["one", "three"]


COUNT = """
import sys, time
from pathlib import Path
from tsr_gym.files import cached

def write(folder):
    with open({log!r}, "a") as log:
        log.write("made ")
    time.sleep(0.3)
    (folder / "marker").touch()

print(cached(Path({source!r}), "retrieval/kind", "marker", write))
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
        "import sys; from pathlib import Path; from tsr_gym.files import locked\n"
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
