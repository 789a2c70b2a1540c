"""The parts that the page on adding parts writes are taken by the command line, all of them in one run."""

import re
import sys

from tests.agents.conftest import chat_model  # noqa: F401
from tests.agents.short_runs import FLAGS
from tests.conftest import ROOT
from tests.test_documents import blocks
from tsr_gym.agents import cli
from tsr_gym.agents.episodes.trajectory import learned_from
from tsr_gym.tree import Tree

PAGE = ROOT / "docs" / "extending.md"
MINE = {
    "--search": "mine:sideways(tries=2)", "--score": "mine:Brief", "--filter": "mine:solved_once(most=15)",
    "--credit": "mine:last_turn_only", "--algorithm": "grpo", "--estimator": "mine:centred",
}  # fmt: skip


def test_parts_of_ones_own_train_together(tmp_path, monkeypatch, chat_model):  # noqa: F811
    *parts, _ = [block.text for block in blocks(PAGE) if block.language == "python"]
    (tmp_path / "mine.py").write_text("\n".join(parts))
    monkeypatch.syspath_prepend(str(tmp_path))
    own = {**FLAGS, **MINE, "--updates": 1, "--model": chat_model, "--out": tmp_path / "run", "--checkpoint-every": 1}
    assert all(f"{flag} " in PAGE.read_text(encoding="utf-8") for flag in MINE)
    try:
        # Nothing is solved in so short a run, and then the filter keeps nothing.
        for keep in (own["--filter"], "none"):
            flags = {**own, "--filter": keep, "--out": tmp_path / keep.partition(":")[0]}
            assert cli.main(["train", "sokoban", *[str(part) for flag in flags.items() for part in flag]]) == 0
    finally:
        sys.modules.pop("mine", None)
    (tree, *_) = (Tree.load(file) for file in sorted((tmp_path / "none" / "trees").rglob("*.jsonl.gz")))
    assert learned_from(tree).estimator == "mine:centred"
    assert learned_from(tree).of


TABLE = PAGE.read_text(encoding="utf-8").partition("## Changes inside")[2]
# Without the head; the line below it has no spaces.
CHANGES = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", TABLE, re.MULTILINE)[1:]


def test_fifteen_changes_name_the_files_that_they_touch():
    assert len(CHANGES) == 15
    for change, text in CHANGES:
        files = re.findall(r"`([\w/]+(?:\.py|/))`", text)
        assert [name for name in files if not (ROOT / name).exists()] == [], change
        assert len(files) <= 6 or change == "images in observations", change
        assert files or change == "a default per world", change
