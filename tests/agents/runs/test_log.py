"""The logs of a run, interrupted at every line of the code that writes them and cut at every byte; and its lock."""

import json
import os
import platform
import re
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.conftest import ROOT, killed_at
from tsr_gym import CheckpointError, ConfigError
from tsr_gym.agents.runs.log import LOCK, OWNER, JsonLines, RunLog, training_lock

RECORDS = [{"step": step, "text": "a √ b", "seconds": {"all": 0.1 * step}} for step in (1, 2, 3)]


def log_of(path, records=RECORDS):
    log = JsonLines(path)
    for record in records:
        log.append(record)
    return log


def test_a_log_cut_at_any_byte_has_its_whole_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    assert JsonLines(path).read() == []
    log_of(path)
    data = path.read_bytes()
    ends = [index for index, byte in enumerate(data) if byte == ord("\n")]
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        # A line is whole when its last bracket is there, with or without the line's end.
        whole = sum(end <= size for end in ends)
        assert JsonLines(path).read() == RECORDS[:whole]


def test_a_cut_log_is_continued_to_equal_bytes(tmp_path, monkeypatch):
    # Nothing crashes here, and waiting for the disk two thousand times takes long.
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    path, whole = tmp_path / "log.jsonl", tmp_path / "whole.jsonl"
    log_of(whole)
    log_of(path)
    data = path.read_bytes()
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        for step in (0, 1, 2):
            log = JsonLines(path)
            log.cut_after(step)
            kept = len(log.read())
            assert kept <= step
            for record in RECORDS[kept:]:
                log.append(record)
            assert path.read_bytes() == whole.read_bytes()
            path.write_bytes(data[:size])


def test_cutting_leaves_the_old_log_or_the_new_one_wherever_it_was_interrupted(tmp_path):
    path = tmp_path / "log.jsonl"
    points = 0
    while True:
        path.unlink(missing_ok=True)
        log = log_of(path)
        if not killed_at(points + 1, lambda: log.cut_after(2), ("runs/log.py", "tsr_gym/files.py")):  # noqa: B023
            break
        points += 1
        assert log.read() in (RECORDS, RECORDS[:2])
        log.append({"step": 9})
        assert log.read()[-1] == {"step": 9}
    assert points > 8
    assert log.read() == RECORDS[:2]


def test_every_line_is_one_json_object_in_one_line_and_comes_back_the_same(tmp_path):
    records = [{"step": 1, "text": 'line\nbreak "quoted"  ', "number": 0.1 + 0.2, "none": None}]
    log = log_of(tmp_path / "log.jsonl", records)
    assert log.read() == records
    before = log.path.read_bytes()
    log.cut_after(1)
    assert log.path.read_bytes() == before
    assert [json.loads(line) for line in before.split(b"\n")[:-1]] == records


DAMAGED = {
    "text that is no JSON": b"{", "nothing": b"", "null": b"null", "a number": b"7", "a list": b'[{"step": 1}]',
    "no step": b'{"text": "a"}', "a step in words": b'{"step": "one"}', "a step that is no count": b'{"step": true}',
    "a step below 0": b'{"step": -1}', "zeros of a disk": b"\0" * 20,
    "bytes that are no text": b'{"step": 1, "text": "\xff\xfe"}', "brackets that are never closed": b"[" * 100_000,
    "a number of too many digits": b'{"step": ' + b"1" * 5000 + b"}",
}  # fmt: skip


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("line", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_line_is_named_and_no_line_after_it_is_lost(tmp_path, line, number):
    log = log_of(tmp_path / "log.jsonl")
    lines = log.path.read_bytes().split(b"\n")
    lines[number - 1] = line
    log.path.write_bytes(b"\n".join(lines))
    before = log.path.read_bytes()
    for use in (log.read, lambda: log.cut_after(2)):
        with pytest.raises(CheckpointError, match=rf"log\.jsonl, line {number}: .*damaged"):
            use()
    assert log.path.read_bytes() == before


def test_lines_end_by_newlines_alone_and_a_cut_character_is_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes('{"step": 1, "text": "a\u2028b\x85c"}\n'.encode())
    assert JsonLines(path).read() == [{"step": 1, "text": "a\u2028b\x85c"}]
    path.write_bytes(b'{"step": 1}\n{"step": 2, "text": "\xe2\x88')
    assert JsonLines(path).read() == [{"step": 1}]


def test_a_log_that_cannot_be_written_or_read_is_an_error(tmp_path):
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(CheckpointError, match=r"log\.jsonl could not be written .*make room and resume"):
        JsonLines(tmp_path / "log.jsonl").append({"step": 1})
    with pytest.raises(CheckpointError, match=r"log\.jsonl could not be read"):
        JsonLines(tmp_path / "log.jsonl").read()


HOLD = """
import sys
from pathlib import Path
from tsr_gym.agents.runs.log import training_lock

with training_lock(Path({run!r})):
    print("mine", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(run):
    """Let another process train a run."""
    code, pipes = HOLD.format(run=str(run)), {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, text=True, **pipes) as holder:
        assert holder.stdout.readline() == "mine\n"
        try:
            yield holder
        finally:
            holder.kill()


@pytest.fixture
def run(tmp_path):
    """A run with records of three updates."""
    log = RunLog(tmp_path)
    with log.opened(0, lambda event, record: None):
        for step in (1, 2, 3):
            log.update({"step": step})
    return tmp_path


def test_a_second_process_gets_the_name_of_the_first_and_changes_nothing(run):
    before = (run / "metrics.jsonl").read_bytes()
    with another_process(run) as holder:
        who = f"process {holder.pid} on {platform.node()}, for 0 minutes"
        words = re.escape(f"{run} is being trained by {who}: stop that process")
        log = RunLog(run)
        with pytest.raises(ConfigError, match=words):
            log.cut_after(1)
        with pytest.raises(ConfigError, match=words), log.opened(3, lambda event, record: None):
            pytest.fail("two processes train one run")
    assert (run / "metrics.jsonl").read_bytes() == before


def test_readers_and_processes_that_never_write_need_no_lock(run):
    with another_process(run):
        assert [record["step"] for record in RunLog(run).metrics.read()] == [1, 2, 3]
        silent = RunLog(run, writes=False)
        silent.cut_after(1)
        with silent.opened(3, lambda event, record: None):
            silent.update({"step": 4})
    assert len(RunLog(run).metrics.read()) == 3


def test_the_lock_of_a_killed_process_is_taken_over_and_a_run_that_ended_is_free(run):
    with another_process(run) as holder:
        holder.kill()
        holder.wait()
        assert (run / "checkpoints" / OWNER).exists()
        RunLog(run).cut_after(2)
    assert len(RunLog(run).metrics.read()) == 2
    assert [path.name for path in (run / "checkpoints").iterdir()] == [LOCK]
    with training_lock(run):
        owner = json.loads((run / "checkpoints" / OWNER).read_text())
        assert (owner["host"], owner["pid"]) == (platform.node(), os.getpid())
    with pytest.raises(ZeroDivisionError), training_lock(run):
        raise ZeroDivisionError
    with training_lock(run):
        pass


@pytest.mark.parametrize("owner", [None, b"", b"null", b"{}", b'{"since": "noon"}', b"\xff", b"[1]"])
def test_an_unreadable_owner_is_another_process(run, owner):
    path = run / "checkpoints" / OWNER
    with another_process(run):
        path.unlink() if owner is None else path.write_bytes(owner)
        with pytest.raises(ConfigError, match="trained by another process: stop that process"):
            RunLog(run).cut_after(1)
