"""Fixtures of the tests of agents: two tiny models and a short run, each made once per process."""

import pytest
import torch

from tests.agents.short_runs import trained
from tests.agents.tiny import chatml_tokenizer, save_chat_model
from tsr_gym.agents.teaching.base_model import build_base_model
from tsr_gym.agents.teaching.base_recipe import BaseRecipe

torch.set_num_threads(1)

# Enough training to be loaded and sampled from, not enough to play.
SMALL = BaseRecipe(steps=30, instances=30, episodes=2, poor_steps=0, validations=8, band=(0.0, 1.0), layers=1)


@pytest.fixture(scope="session")
def tokenizer():
    """A byte-level tokenizer with Qwen's ChatML template."""
    return chatml_tokenizer()


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory):
    """The folder of a Qwen2 with random weights, which takes the paper's prompt with full history."""
    return save_chat_model(tmp_path_factory.mktemp("chat") / "model")


@pytest.fixture(scope="session")
def base_model(tmp_path_factory):
    """The folder of an embedded base model of Sokoban, hardly trained, which takes the compact prompt."""
    folder = tmp_path_factory.getbasetemp() / "base-model"
    if not folder.exists():
        build_base_model("sokoban", folder, SMALL)
    return folder


@pytest.fixture(scope="session")
def undisturbed(base_model, tmp_path_factory):
    """The folder of a short run without interruption."""
    folder = tmp_path_factory.getbasetemp() / "undisturbed"
    return folder if folder.exists() else trained(folder, base_model)
