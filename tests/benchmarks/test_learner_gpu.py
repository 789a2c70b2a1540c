"""The GPU's measurement, tried on a CPU: it runs to its end, and its counts are those made by hand."""

import json

import pytest
import torch

from benchmarks import learner_gpu
from benchmarks.learner_gpu import TINY, Attempt, Case, Shape, flops, main, measured, read_options, work_of
from tests.agents.learning.layouts.test_forest import rows_batch


@pytest.mark.filterwarnings("ignore")
def test_it_runs_to_its_end_and_writes_its_record(tmp_path, capsys):
    out = tmp_path / "gpu.json"
    main(read_options(["--device", "cpu", "--tiny", "--plain", "--rounds", "1", "--out", str(out)]))
    record = json.loads(out.read_text())
    (case,) = record["cases"]
    assert record["device"] == "cpu"
    assert record["torch"] == torch.__version__
    assert case["packed"]["tokens"] / case["shared"]["tokens"] == pytest.approx(case["token ratio"], abs=1e-3)
    assert case["token ratio"] > 2
    assert case["packed"]["did not fit"] == case["shared"]["did not fit"] == []
    assert json.loads(capsys.readouterr().out) == record


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        main(read_options(["--out", str(tmp_path / "gpu.json")]))
    assert stop.value.code == 2
    assert capsys.readouterr().err == "There is no GPU here that PyTorch can use; nothing was measured or written.\n"
    assert list(tmp_path.iterdir()) == []


def test_work_by_hand():
    # 5 6 8 9 and 5 6 7, of which the last tokens are sampled.
    batch = rows_batch([[5, 6, 8, 9], [5, 6, 7]])
    assert work_of(batch, "packed", 8) == (7, 2, 1 + 2 + 3 + 4 + 1 + 2 + 3)
    assert work_of(batch, "shared", 8) == (5, 2, 1 + 2 + 3 + 4 + 3)
    # 10 parameters of 100 words of width 2 and 3 layers: 4 tokens, 2 logits, 6 pairs.
    shape = Shape(2, 3, 1, 1, 1, 100)
    assert flops(shape, 210, learner_gpu.Work(4, 2, 6)) == (
        6 * 10 * 4 + 6 * 200 * 2 + 12 * 3 * 2 * 6,
        6 * 210 * 4 + 12 * 3 * 2 * 6,
    )


def test_the_first_attempt_that_fits_is_taken(monkeypatch):
    def attempted(case, attempt, layout, options, compiled):
        if attempt.microbatch > 1:
            raise torch.OutOfMemoryError("too little")
        return {"micro-batch": attempt.microbatch}

    monkeypatch.setattr(learner_gpu, "attempted", attempted)
    case = Case(TINY["tiny"].shape, 1, 8, (Attempt(4, False), Attempt(2, True), Attempt(1, True)))
    options = read_options(["--device", "cpu"])
    assert measured(case, "packed", options, compiled=False) == {
        "micro-batch": 1,
        "did not fit": [{"microbatch": 4, "recompute": False}, {"microbatch": 2, "recompute": True}],
    }
    nothing = Case(TINY["tiny"].shape, 1, 8, (Attempt(4, False),))
    assert "nothing that was tried fits" in measured(nothing, "packed", options, compiled=False)["failed"]
