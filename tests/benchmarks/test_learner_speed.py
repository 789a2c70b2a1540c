"""The layouts' measurement: what it counts as kept, its trees, and its note where TRL is not installed."""

import torch

from benchmarks import learner_speed
from benchmarks.learner_speed import beside_trl, bytes_kept, measure
from benchmarks.learner_trees import KINDS, Shape, batch_of, beam_tree


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
        beside = (found.exp() * found).sum().detach()
        assert beside == 0
        found.sin().sum().backward()

    assert bytes_kept(layer, work) == 4 * (10 * 8 + 10 * 4)


def test_a_beam_has_its_last_candidates_and_all_share_its_prompt():
    paths = beam_tree(torch.Generator().manual_seed(0), 128, every=False)
    assert len(paths) == 8
    assert {len(path.ids) for path in paths} == {128}
    # Five turns of 16 tokens behind the prompt; the last eight of each are sampled.
    assert len({path.ids[:48] for path in paths}) == 1
    assert paths[0].said == tuple((start + 8, start + 16) for start in range(48, 128, 16))
    # 48, up to two members after each turn, eight candidates after the last.
    tree = {path.ids[:length] for path in paths for length in range(1, 129)}
    assert len(tree) <= 48 + 4 * 2 * 16 + 8 * 16


def test_sharing_keeps_less():
    draw = torch.Generator().manual_seed(0)
    batch = batch_of(KINDS["beam, every candidate"](draw, 64), draw)
    found = measure(batch, Shape(16, 1, 2, 2, 16), rounds=1)
    assert found["shared"]["bytes kept"] < found["padded"]["bytes kept"]
    assert found["padded"]["token ratio"] == 1.0 < found["shared"]["token ratio"]
    assert found["auto"]["read as"] == "shared"


def test_without_trl_it_says_so(monkeypatch):
    monkeypatch.setattr(learner_speed, "find_spec", lambda name: None)
    assert beside_trl(quick=True).startswith("not measured: TRL is not installed here")
