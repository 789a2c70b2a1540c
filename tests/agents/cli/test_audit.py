"""`tsr audit`: a table, a file of findings, and an exit status that a pipeline can read."""

import json

from tests.agents.bridges.helpers import grown_trees
from tsr_gym.agents import cli
from tsr_gym.agents.bridges.export import export


def test_rows_are_clean_or_the_exit_status_says_that_they_are_not(capsys, tmp_path):
    (tree,), model, tokenizer = grown_trees()
    tree.save(tmp_path / "tree.jsonl")
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    rows = tmp_path / "rows.parquet"
    export([tmp_path / "tree.jsonl"], rows, kind="trajectories(take='leaves')")
    assert cli.main(["audit", str(rows), "--model", str(tmp_path / "model")]) == 0
    printed = capsys.readouterr()
    shown = printed.out
    # How far it is stands on the standard error, in tenths where it is piped.
    assert printed.err.splitlines()[-1] == "rows that the model reads: 100 %"
    assert "wrong" not in shown.replace("or is wrong", "")
    assert "not checked: text" in shown

    export([tmp_path / "tree.jsonl"], tmp_path / "rows.jsonl", kind="trajectories(take='leaves')")
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    lines[0]["completion_mask"] = [1 - one for one in lines[0]["completion_mask"]]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "findings.json"
    flags = ["--tokenizer", str(tmp_path / "model"), "--json", str(out)]
    assert cli.main(["audit", str(tmp_path / "rows.jsonl"), *flags]) == 1
    assert "1 wrong" in capsys.readouterr().out
    checks = {check["name"]: check for check in json.loads(out.read_text())["checks"]}
    assert "the mask is inverted" in checks["answers"]["findings"][0]["says"]
    assert checks["answers"]["findings"][0]["row"] == 0
