"""A tiny Qwen2 with random weights, its byte-level BPE with a ChatML template, and an engine that is a function."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from tsr_gym import Unsupported
from tsr_gym.agents.policies.engine import Capabilities, Completion
from tsr_gym_envs.frozen_lake.env import FrozenLakeEnv
from tsr_gym_envs.sokoban.env import SokobanEnv

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def chatml_tokenizer(template=CHATML):
    """Return a byte-level tokenizer in which many texts have several spellings, as in every BPE."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=SPECIALS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    words = [SokobanEnv.instructions, FrozenLakeEnv.instructions, "<think> </think> <answer> </answer>", "##__OXP√S"]
    tokenizer.train_from_iterator(words, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = template
    return fast


def random_qwen2(tokenizer, *, context=2048, seed=0, tie=True, hidden=32, **more):
    """Return a Qwen2 with random weights, large enough that its distributions are far from uniform."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        tie_word_embeddings=tie,
        initializer_range=0.3,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        **more,
    )
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(config).eval()


def save_chat_model(folder, **settings):
    """Write a tiny checkpoint into a folder and return the folder."""
    tokenizer = chatml_tokenizer()
    random_qwen2(tokenizer, **settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class ScriptedEngine:
    """An engine that answers by a function.

    Args:
        answer: From prompt ids and a seed to the answer's ids.
    """

    capabilities = Capabilities(logprobs=False, company=True, abort=False)

    def __init__(self, answer: Callable[[Sequence[int], int], Sequence[int]]) -> None:
        self.answer = answer
        self.calls = 0
        self.weight_version = 0

    def generate(
        self, prompts: Sequence[Sequence[int]], *, seeds: Sequence[Sequence[int]], max_tokens: int | None = None
    ) -> list[list[Completion]]:
        """Return the scripted answers with log-probability 0."""
        self.calls += 1
        return [[self._complete(prompt, seed) for seed in row] for prompt, row in zip(prompts, seeds, strict=True)]

    def _complete(self, prompt: Sequence[int], seed: int) -> Completion:
        ids = tuple(self.answer(prompt, seed))
        return Completion(ids, (0.0,) * len(ids), "stop", 0, self.weight_version)

    def load_weights(self, weights: Iterable[tuple[str, Any]], *, version: int | None = None) -> None:
        """Count the call, because a script has no weights."""
        self.weight_version = self.weight_version + 1 if version is None else version

    def abort(self) -> None:
        """Raise Unsupported, because a script answers at once."""
        raise Unsupported("a script cannot be interrupted")
