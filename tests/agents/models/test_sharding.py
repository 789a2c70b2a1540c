"""Sharding: every process has its rows, together they make up the model, and it is whole where that is wanted."""

import pytest
import torch
from torch.distributed.fsdp import FSDPModule

from tests.agents.learning.layouts.rows import WORDS, random_model
from tests.agents.together import together
from tsr_gym.agents.models.sharding import own_range, own_rows, settle, shard, wake, whole, whole_tensor, whole_weights
from tsr_gym.agents.processes import ALONE

CPU = torch.device("cpu")
IDS = torch.arange(1, 9)[None] % WORDS


def look(processes):
    """Spread a model and return everything about it that a test wants to know."""
    plain, model = random_model("qwen2"), random_model("qwen2")
    shard(model, processes, CPU)
    settle(model, CPU)
    rows = {name: (own_range(value), own_rows(value).detach()) for name, value in model.named_parameters()}
    gathered = {name: whole_tensor(value).detach() for name, value in model.state_dict().items()}
    with torch.no_grad():
        expected = plain(input_ids=IDS).logits
        together = model(input_ids=IDS).logits
        wake(model)
        of_part = model.model(input_ids=IDS).last_hidden_state
        with whole(model):
            # As often as each process likes, which would hang if they had to meet.
            alone = [model(input_ids=IDS).logits for _ in range(processes.rank + 1)]
    with whole_weights(model) as weights:
        held = {name: value.clone() for name, value in weights.items()}
    model.reshard()
    return {
        "rows": rows,
        "gathered": gathered,
        "held": held,
        "off": [float((logits - expected).abs().max()) for logits in (together, *alone)],
        "of_part": float((plain.model(input_ids=IDS).last_hidden_state - of_part).abs().max()),
        "spread again": all(own_rows(value) is not value for value in model.parameters()),
        "parts": sum(isinstance(module, FSDPModule) for module in model.modules()),
    }


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.deep)])
def test_processes_hold_their_rows_and_read_the_model_together_or_alone(size):
    expected = random_model("qwen2").state_dict()
    seen = together(size, look)
    for name, value in expected.items():
        if name in seen[0]["rows"]:
            assert [row for one in seen for row in one["rows"][name][0]] == list(range(len(value)))
            assert torch.equal(torch.cat([one["rows"][name][1] for one in seen]), value)
        assert all(torch.equal(one["gathered"][name], value) and torch.equal(one["held"][name], value) for one in seen)
    for one in seen:
        assert one["gathered"].keys() == one["held"].keys() == expected.keys()
        assert max(*one["off"], one["of_part"]) < 1e-5
        assert one["spread again"]
        # Two layers and the rest.
        assert one["parts"] == 3


def test_one_process_has_all_of_a_model_that_stays_as_it_is():
    model = random_model("qwen2")
    before = dict(model.named_parameters())
    shard(model, ALONE, CPU)
    wake(model)
    with whole(model), whole_weights(model) as weights:
        assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    for name, value in model.named_parameters():
        assert value is before[name]
        assert own_rows(value) is whole_tensor(value) is value
        assert own_range(value) == range(len(value))
