"""`tsr doctor`: what is there and what is not, a self-test that ends in its time, and a status for scripts."""

import json
import os
import time
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import pytest

from tests.test_house import REQUIREMENTS
from tsr_gym import MissingExtra
from tsr_gym.agents import cli
from tsr_gym.agents.cli import doctor
from tsr_gym.agents.cli.doctor import Trial, self_test, try_world
from tsr_gym.version import __version__


def misses():
    raise MissingExtra("wings", "flight")


def fails():
    raise RuntimeError("no lift")


works, crashes, sleeps = partial(str, "it works"), partial(os._exit, 7), partial(time.sleep, 60)


def test_every_part_of_the_self_test_is_reported_and_what_came_before_an_end_of_the_process_is_kept():
    found = self_test(60, {"a": works, "b": misses, "c": fails})
    assert found == [
        Trial("a", "works", "it works"),
        Trial("b", "missing", "this needs the package 'wings', which is not installed: pip install 'tsr-gym[flight]'"),
        Trial("c", "failed", "RuntimeError: no lift"),
    ]
    found = self_test(60, {"a": works, "b": crashes, "c": works})
    assert [(one.what, one.state) for one in found] == [("a", "works"), ("b", "failed"), ("c", "not done")]
    assert found[1].words == "it ended the process (status 7)"


def test_what_takes_too_long_is_left_and_says_so():
    # Long enough for a process to begin, on a busy machine.
    found = self_test(6, {"a": sleeps, "b": works})
    assert {one.state for one in found} == {"not done"}
    assert "within 6 s" in found[0].words


def test_a_world_is_made_restored_and_searched():
    # Two candidates survive a level at most: 1 + 4 nodes, and 4 below each of at most 2.
    assert 5 <= int(try_world("tsr/Sokoban-v0").rpartition("tree of ")[2].partition(" ")[0]) <= 13


def test_every_extra_has_words_and_a_package_that_is_not_installed_is_a_problem(monkeypatch):
    assert set(doctor.BRINGS) == set(REQUIREMENTS) - {""}
    monkeypatch.setattr(doctor, "extras", lambda: None)
    assert "pip install -e" in doctor.examine(tests=False)["problems"][0]


def test_versions_and_what_is_missing_are_those_of_the_installed_packages(monkeypatch):
    there = {"numpy": "2.0", "gymnasium": "1.4.1", "torch": "2.1", "httpx": "0.28", "tyro": "1.1"}
    lines = ["numpy>=1.26", "gymnasium>=1.4", 'torch>=2.6; extra == "agents"', 'safetensors>=0.5; extra == "agents"']
    lines += ['httpx>=0.27; extra == "openai"', 'tsr-gym[cli]; extra == "openai"', 'tyro>=1; extra == "cli"']
    monkeypatch.setattr(doctor, "requires", lambda name: [*lines, 'rich>=13; extra == "cli"'])
    monkeypatch.setattr(doctor, "version", lambda name: version_in(there, name))
    extras = {extra.name: extra for extra in doctor.extras()}
    assert (extras[""].complete, extras[""].versions) == (True, {"numpy": "2.0", "gymnasium": "1.4.1"})
    assert extras["agents"].lacking == ("torch>=2.6 (found 2.1)", "safetensors")
    assert extras["agents"].install == "pip install 'tsr-gym[agents]'"
    assert extras["lora"].complete
    # An extra has what the extras that it names require.
    assert (extras["openai"].versions, extras["openai"].lacking) == ({"httpx": "0.28", "tyro": "1.1"}, ("rich",))


def version_in(there, name):
    if name not in there:
        raise PackageNotFoundError(name)
    return there[name]


def run(capsys, *args):
    return cli.main(["doctor", *args]), capsys.readouterr()


def test_json_holds_what_was_found_and_nothing_else_is_printed(capsys, monkeypatch, tmp_path):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "words.bin").write_bytes(b"12345")
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    status, shown = run(capsys, "--no-self-test", "--json")
    found = json.loads(shown.out)
    assert (status, found["tsr_gym"], found["problems"]) == (0, __version__, [])
    assert found["cache"] == {"folder": str(tmp_path), "files": 1, "bytes": 5}
    assert found["threads"]["OMP_NUM_THREADS"] == "1"
    assert found["extras"][0]["versions"]["numpy"] == version("numpy")


def test_for_people_it_is_a_table_with_the_line_that_completes_an_extra(capsys, monkeypatch):
    lacking = doctor.Extra("envs", "the shop", {"regex": "1"}, ("numba",), "pip install 'tsr-gym[envs]'")
    monkeypatch.setattr(doctor, "extras", lambda: [doctor.Extra("", "all", {}, (), ""), lacking])
    status, shown = run(capsys, "--no-self-test")
    assert status == 0
    assert "lacks numba: pip install 'tsr-gym[envs]'" in " ".join(shown.out.replace("│", " ").split())


@pytest.mark.parametrize(
    ("trials", "wanted"),
    [([Trial("a", "missing", "x"), Trial("b", "not done", "y")], 0), ([Trial("a", "failed", "RuntimeError: x")], 1)],
    ids=["missing extras are no problem", "a world that fails is one"],
)
def test_the_status_says_whether_something_is_broken(capsys, monkeypatch, trials, wanted):
    monkeypatch.setattr("tsr_gym.agents.cli.doctor.self_test", lambda: trials)
    assert run(capsys)[0] == wanted
