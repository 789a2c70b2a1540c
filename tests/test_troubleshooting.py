"""Every message of the troubleshooting page is one that is really raised."""

import re
from functools import partial

import gymnasium as gym
import pytest

import tsr_gym
from tests.conftest import ROOT
from tsr_gym import Candidate, Node, Tree
from tsr_gym.agents.config import RunConfig, TrainConfig
from tsr_gym.agents.episodes.collect import choose_search
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.runs.check import check_start
from tsr_gym.agents.strategies import choose_strategy
from tsr_gym.optional import require
from tsr_gym.registration import find_env
from tsr_gym.wrappers import AnswerFormat
from tsr_gym.wrappers.replay import stack_of


def started(name):
    env = gym.make(name)
    env.reset(seed=1)
    return env


def restored_elsewhere():
    tsr_gym.restore(AnswerFormat(gym.make("tsr/Sokoban-v0")), tsr_gym.snapshot(started("tsr/Sokoban-v0")))


def changed_bytes():
    tsr_gym.Snapshot.from_bytes(tsr_gym.snapshot(started("tsr/Sokoban-v0")).to_bytes()[:-1] + b"?")


def read(folder, change):
    tree = Tree()
    tree.add(Node(None, 0, Candidate(""), "first", 0.0, 0.0, False, False, {}, None))
    tree.save(folder / "tree.jsonl")
    (folder / "tree.jsonl").write_text(change((folder / "tree.jsonl").read_text()))
    Tree.load(folder / "tree.jsonl")


def played_on():
    env = started("tsr/Sokoban-v0").unwrapped
    for _ in range(6):
        env.step("Up")


CASES = {
    "this needs the package": lambda _: require("no_such_package", "envs"),
    "there is no environment": lambda _: find_env("sokobann"),
    "wanted an environment of text": lambda _: EnvPool("CartPole-v1", {}),
    "unknown settings": lambda _: gym.make("tsr/Sokoban-v0", boxes=2),
    "the strategy": lambda _: choose_strategy("beam(wide=2)"),
    "... exists: choose another": lambda folder: check_start(TrainConfig(env="sokoban", run=RunConfig(out=folder))),
    "... may select fewer": lambda _: choose_search(SearchConfig(search="beam(width=2)", paths_per_search=4)),
    "... has no state yet": lambda _: tsr_gym.snapshot(gym.make("CartPole-v1")),
    "wanted a snapshot of": lambda _: restored_elsewhere(),
    "the bytes do not match": lambda _: changed_bytes(),
    "..., line ...": partial(read, change=lambda text: text.replace('"reward": 0.0', '"reward": "much"')),
    "... wanted ... nodes": partial(read, change=lambda text: text.splitlines()[0] + "\n"),
    "the tree does not record": lambda _: stack_of(Tree()),
    "the episode of": lambda _: played_on(),
}
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_the_page_is_raised(message, tmp_path):
    (raise_it,) = [case for start, case in CASES.items() if message.startswith(start)]
    with pytest.raises((tsr_gym.TsrGymError, ValueError)) as raised:
        raise_it(tmp_path)
    wanted = ".*".join(map(re.escape, message.split("...")))
    assert re.search(wanted, str(raised.value)), raised.value


def test_every_case_is_on_the_page():
    assert len(MESSAGES) == len(CASES)
