"""Files are checked once, and again when they change."""

import os

import pytest

from tsr_gym_envs.verified import SUFFIX, check_once


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Return a folder with two files, and a function that runs the check and returns whether it read the files."""
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "folder"
    folder.mkdir()
    files = [folder / "one", folder / "two"]
    for file in [folder / "about.json", *files]:
        file.write_bytes(b"sound")

    def is_checked(**settings):
        calls = []
        check_once(folder / "about.json", files, lambda: calls.append(1), **settings)
        return bool(calls)

    return folder, is_checked


def test_what_passed_is_not_checked_again_until_a_size_or_a_time_changes(checked):
    folder, is_checked = checked
    assert [is_checked(), is_checked(), is_checked(again=True), is_checked()] == [True, False, True, False]
    os.utime(folder / "two", ns=(0, 0))
    assert [is_checked(), is_checked()] == [True, False]
    (folder / "one").write_bytes(b"longer")
    assert [is_checked(), is_checked()] == [True, False]


def test_a_copy_elsewhere_is_checked_by_itself(checked, tmp_path):
    folder, is_checked = checked
    assert is_checked()
    for file in (folder / "one", folder / "two"):
        os.replace(file, tmp_path / file.name)
        stat = (tmp_path / file.name).stat()
        file.write_bytes(b"sound")
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert is_checked()


def test_what_failed_is_checked_every_time(tmp_path, monkeypatch):
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "file").touch()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            check_once(tmp_path / "file", [], lambda: 1 / 0)


def test_where_the_folder_cannot_be_written_the_cache_remembers(checked, tmp_path, monkeypatch):
    folder, is_checked = checked
    # A folder in the record's place cannot be written, even by root.
    (folder / f"about{SUFFIX}").mkdir()
    assert [is_checked(), is_checked()] == [True, False]
    assert list((tmp_path / "cache" / "verified").iterdir())
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    assert [is_checked(), is_checked()] == [True, True]
