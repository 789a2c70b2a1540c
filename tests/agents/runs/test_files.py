"""Files of a run, interrupted at every line of the code that writes them and cut at every byte."""

import json
import sys

import pytest

from tsr_gym import CheckpointError
from tsr_gym.agents.runs.files import MANIFEST, JsonLines, check_folder, write_folder


class Killed(BaseException):
    """No handler of errors catches it, as none catches a kill."""


def killed_at(number, do):
    """Do something and stop it before the given line of files.py or tree.py; return whether it came that far."""
    lines = 0

    def trace(frame, event, arg):
        nonlocal lines
        if not frame.f_code.co_filename.endswith(("runs/files.py", "tsr_gym/tree.py")):
            return None
        if event == "line":
            lines += 1
            if lines == number:
                raise Killed
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    except Killed:
        return True
    finally:
        sys.settrace(before)
    return False


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
    while killed_at(points + 1, lambda: write_folder(tmp_path / "000002", fill)):
        points += 1
        check_folder(tmp_path / "000001")
        if (tmp_path / "000002").exists():
            check_folder(tmp_path / "000002")
            assert names(tmp_path / "000002") == WHOLE
            (tmp_path / "000002").rename(tmp_path / f"found-{points}")
    assert points > 15
    # The last attempt was not interrupted: whatever the others left behind did not disturb it.
    check_folder(tmp_path / "000002")
    assert names(tmp_path / "000002") == WHOLE
    assert not list(tmp_path.glob(".*"))
    # Some came after the moment at which the folder is there, most before.
    assert 0 < len(list(tmp_path.glob("found-*"))) < points / 2


@pytest.mark.parametrize("kind", [OSError, RuntimeError, ValueError])
def test_whatever_error_the_writing_ends_with_it_leaves_nothing_and_says_what_to_do(tmp_path, kind):
    def broken(folder):
        fill(folder)
        raise kind("No space left on device")

    write_folder(tmp_path / "000001", fill)
    with pytest.raises(CheckpointError, match=r"000002 could not be written .*No space left.* untouched: make room"):
        write_folder(tmp_path / "000002", broken)
    assert [path.name for path in tmp_path.iterdir()] == ["000001"]
    check_folder(tmp_path / "000001")


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


@pytest.mark.parametrize("manifest", [None, "", '{"b.bin": ', "[]", "7"])
def test_a_folder_without_its_list_of_files_is_no_checkpoint(tmp_path, manifest):
    write_folder(tmp_path / "000007", fill)
    (tmp_path / "000007" / MANIFEST).unlink()
    if manifest is not None:
        (tmp_path / "000007" / MANIFEST).write_text(manifest)
    with pytest.raises(CheckpointError, match=r"000007: no complete checkpoint .*resume from another one"):
        check_folder(tmp_path / "000007")


RECORDS = [{"step": step, "text": "a √ b", "seconds": {"all": 0.1 * step}} for step in (1, 2, 3)]


def log_of(path, records=RECORDS):
    log = JsonLines(path)
    for record in records:
        log.append(record)
    return log


def test_a_log_that_is_not_there_is_empty(tmp_path):
    assert JsonLines(tmp_path / "log.jsonl").read() == []


def test_a_log_cut_at_any_byte_has_its_whole_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    log_of(path)
    data = path.read_bytes()
    ends = [index for index, byte in enumerate(data) if byte == ord("\n")]
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        # A line is whole when its last bracket is there, with or without the line's end.
        whole = sum(end <= size for end in ends)
        assert JsonLines(path).read() == RECORDS[:whole]


def test_a_cut_log_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch):
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
        if not killed_at(points + 1, lambda: log.cut_after(2)):  # noqa: B023
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


def test_a_log_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(CheckpointError, match=r"log\.jsonl could not be written .*make room and resume"):
        JsonLines(tmp_path / "log.jsonl").append({"step": 1})
