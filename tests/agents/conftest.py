"""What the tests of agents share: two tiny models, each made once per process, and a quiet transformers."""

import pytest
import torch
from transformers.utils import logging

from tests.agents.tiny import chatml_tokenizer, save_chat_model
from tsr_gym.agents.base_model import BaseRecipe, build_base_model

torch.set_num_threads(1)
logging.disable_progress_bar()

# Enough to be read and sampled from, not enough to play.
SMALL = BaseRecipe(steps=30, episodes=60, poor_steps=0, band=(0.0, 1.0))


@pytest.fixture(scope="session")
def tokenizer():
    """A byte-level tokenizer with Qwen's ChatML template."""
    return chatml_tokenizer()


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory):
    """The folder of a Qwen2 of random weights, which takes the paper's prompt with full history."""
    return save_chat_model(tmp_path_factory.mktemp("chat") / "model")


@pytest.fixture(scope="session")
def base_model(tmp_path_factory):
    """The folder of an embedded base model of Sokoban, hardly trained, which takes the compact prompt."""
    folder = tmp_path_factory.mktemp("base") / "model"
    build_base_model("sokoban", folder, SMALL)
    return folder
