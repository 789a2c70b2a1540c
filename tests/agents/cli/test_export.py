"""`tsr export`: the trees of a run as lines, each of which is in a tree."""

import json

import pytest

from tests.agents.cli.test_core_install import answers, run, with_command  # noqa: F401 (fixtures of a Python without extras)
from tests.agents.short_runs import trained
from tsr_gym import Tree
from tsr_gym.agents import cli


@pytest.fixture(scope="module")
def searched(base_model, tmp_path_factory):
    """A short run of beam search, whose trees are saved; some answers have the wanted form, so that rewards differ."""
    search = {"search": "beam(width=2, branching=4)", "groups": 4}
    out = tmp_path_factory.mktemp("runs") / "beam"
    return trained(out, base_model, search=search, model={"max_tokens": 16}, run={"updates": 2, "save_trees": 4})


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_preferences_of_a_run_are_found_again_in_its_trees(capsys, searched, tmp_path):
    out = tmp_path / "pairs.jsonl"
    assert cli.main(["export", str(searched), "--kind", "preferences(pairing='all')", "--out", str(out)]) == 0
    files = {str(path) for path in (searched / "trees").rglob("*.jsonl.gz")}
    rows = lines(out)
    shown = capsys.readouterr().out
    assert shown == f"{out}: {len(rows):,} preferences(pairing='all') from {len(files)} trees\n"
    assert rows
    for row in rows:
        tree = Tree.load(row["tree"])
        children = {tree.nodes[child].candidate.token_ids: child for child in reversed(tree.children(row["node"]))}
        better, worse = children[tuple(row["chosen_ids"])], children[tuple(row["rejected_ids"])]
        assert tree.nodes[better].score - tree.nodes[worse].score == pytest.approx(row["gap"])
        assert row["gap"] > 0
        assert list(tree.nodes[better].candidate.prompt_ids) == row["prompt_ids"]
        assert list(tree.nodes[better].candidate.logprobs) == row["chosen_logprobs"]


def test_step_values_of_a_tree_are_means_over_what_came_after(searched, tmp_path):
    (source, *_) = sorted((searched / "trees").rglob("*.jsonl.gz"))
    out = tmp_path / "values.jsonl"
    assert cli.main(["export", str(source), "--kind", "step-values(unfinished='return')", "--out", str(out)]) == 0
    tree = Tree.load(source)

    def worth(node):
        below = tree.children(node)
        return sum(map(worth, below)) / len(below) if below else tree.total(node, "reward")

    wanted = {
        (node.candidate.token_ids, node.depth - 1): worth(index) for index, node in enumerate(tree.nodes) if index
    }
    rows = lines(out)
    assert len(rows) == len(tree.nodes) - 1
    assert sorted(row["value"] for row in rows) == pytest.approx(
        sorted(map(worth, range(1, len(tree.nodes)))), abs=1e-5
    )
    assert all((tuple(row["response_ids"]), row["turn"]) in wanted for row in rows)


def test_trajectories_need_no_extra_and_other_kinds_name_theirs(run, searched, tmp_path):  # noqa: F811
    others = (("step-values", "torch"), ("preferences(pairing='all')", "tokenizers"))
    kinds = ("trajectories", *(kind for kind, _ in others))
    export = ["export", str(searched), "--out", str(tmp_path / "out.jsonl"), "--kind"]
    (status, _, error), *refused = answers(run, *[[*export, kind] for kind in kinds])
    assert status == 0, error
    for (_, package), (*_, said) in zip(others, refused, strict=True):
        assert f"needs the package '{package}', which is not installed: pip install 'tsr-gym[agents]'" in said
