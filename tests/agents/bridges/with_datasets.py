"""Exports are read by `datasets`, which comes with TRL; `make test-trl` runs it."""

import pytest

from tests.agents.bridges.grown import grown_trees
from tests.agents.bridges.test_preferences import small_tree
from tsr_gym.agents.bridges.export import export
from tsr_gym.agents.bridges.rows import tree_rows

KINDS = ["trajectories(take='leaves')", "nodes", "preferences(pairing='all')", "step-values(unfinished='return')"]
FORMS = {"jsonl": "json", "parquet": "parquet"}


@pytest.mark.parametrize("suffix", FORMS)
@pytest.mark.parametrize(
    "kind", ["trajectories(take='leaves')", "nodes", "preferences", "step-values(unfinished='return')"]
)
def test_a_data_set_has_the_records_that_were_written(tmp_path, suffix, kind):
    from datasets import load_dataset

    # The lakes of a model that knows nothing pay alike, so nothing there is preferred.
    tree = small_tree() if kind.startswith("preferences") else grown_trees()[0][0]
    tree.save(tmp_path / "tree.jsonl")
    out = tmp_path / f"rows.{suffix}"
    written = export([tmp_path / "tree.jsonl"], out, kind=kind)
    found = load_dataset(FORMS[suffix], data_files=str(out), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(found) == written.records > 0
    if kind.startswith("trajectories"):
        for row, wanted in zip(found, tree_rows(tree, take="leaves"), strict=True):
            assert row["input_ids"] == list(wanted.input_ids)
            assert row["mask"] == list(wanted.mask)
            assert row["logprobs"] == list(wanted.logprobs)
