"""A tiny checkpoint that is nothing of ours: random Qwen2 weights, a byte-level BPE and Qwen's ChatML template."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

import tsr_gym  # noqa: F401 (registers the worlds)
from tsr_gym_envs.frozen_lake.env import FrozenLakeEnv
from tsr_gym_envs.sokoban.env import SokobanEnv

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def chatml_tokenizer(template=CHATML):
    """Return a tokenizer in which many texts have several spellings, as every BPE does."""
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
    """Return a Qwen2 of random weights; large ones, so that its distributions are far from uniform."""
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
    """Write such a checkpoint into a folder and return the folder."""
    tokenizer = chatml_tokenizer()
    random_qwen2(tokenizer, **settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
