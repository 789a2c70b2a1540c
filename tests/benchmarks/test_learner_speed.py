"""Measurements of the learner, tried on a CPU: bytes kept, trees, counts, and records."""

import json

import pytest
import torch

from benchmarks import learner_gpu, learner_speed, learner_trees
from benchmarks.learner_gpu import TINY, Attempt, Case, Shape, flops, main, measured, read_options, work_of
from benchmarks.learner_speed import beside_trl, bytes_kept, measure
from benchmarks.learner_trees import KINDS, batch_of, beam_tree
from tests.agents.learning.layouts.test_forest import rows_batch


def test_what_is_kept_by_hand():
    layer, states = torch.nn.Linear(8, 4, bias=False), torch.zeros(10, 8, requires_grad=True)
    # Two passes, one after the other: the second keeps the states and what the sine is of, [10, 4].
    work = [lambda: layer(states).sum().backward(), lambda: layer(states).sin().sum().backward()]
    assert bytes_kept(layer, lambda: [one() for one in work]) == 4 * (10 * 8 + 10 * 4)


def test_what_no_loss_goes_through_is_not_kept():
    layer, states = torch.nn.Linear(8, 4, bias=False), torch.zeros(10, 8, requires_grad=True)

    def work():
        found = layer(states)
        # The exponential keeps its result, and the product both of its factors.
        assert (found.exp() * found).sum().detach() == 0
        found.sin().sum().backward()

    assert bytes_kept(layer, work) == 4 * (10 * 8 + 10 * 4)


def test_a_beam_has_its_last_candidates_and_all_share_its_prompt():
    paths = beam_tree(torch.Generator().manual_seed(0), 128, every=False)
    assert (len(paths), {len(path.ids) for path in paths}) == (8, {128})
    # Five turns of 16 tokens behind the prompt; the last eight of each are sampled.
    assert len({path.ids[:48] for path in paths}) == 1
    assert paths[0].said == tuple((start + 8, start + 16) for start in range(48, 128, 16))
    # 48, up to two members after each turn, eight candidates after the last.
    tree = {path.ids[:length] for path in paths for length in range(1, 129)}
    assert len(tree) <= 48 + 4 * 2 * 16 + 8 * 16


def test_sharing_keeps_less():
    draw = torch.Generator().manual_seed(0)
    batch = batch_of(KINDS["beam, every candidate"](draw, 64), draw)
    found = measure(batch, learner_trees.Shape(16, 1, 2, 2, 16), rounds=1)
    assert found["shared"]["bytes kept"] < found["padded"]["bytes kept"]
    assert found["padded"]["token ratio"] == 1.0 < found["shared"]["token ratio"]
    assert found["auto"]["read as"] == "shared"


def test_without_trl_it_says_so(monkeypatch):
    monkeypatch.setattr(learner_speed, "find_spec", lambda name: None)
    assert beside_trl(quick=True).startswith("not measured: TRL is not installed here")


@pytest.mark.filterwarnings("ignore")
def test_it_runs_to_its_end_and_writes_its_record(tmp_path, capsys):
    out = tmp_path / "gpu.json"
    main(read_options(["--device", "cpu", "--tiny", "--plain", "--rounds", "1", "--out", str(out)]))
    record = json.loads(out.read_text())
    (case,) = record["cases"]
    assert (record["device"], record["torch"]) == ("cpu", torch.__version__)
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
