"""Trees that a tiny model of random weights grew, with its tokens and their log-probabilities."""

import torch

from tests.agents.tiny import chatml_tokenizer, random_qwen2
from tests.agents.worlds import lake
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.policies.prompts import History, plain_prompt
from tsr_gym.agents.policies.transformers_engine import TransformersEngine
from tsr_gym.agents.strategies import choose_strategy


def grown_trees(count=1, *, strategy="beam(width=2, branching=3)", history="full", turns=3, max_tokens=5, hidden=32):
    """Return trees over slippery lakes, with the model and the tokenizer that grew them."""
    torch.set_num_threads(1)
    tokenizer = chatml_tokenizer()
    model = random_qwen2(tokenizer, hidden=hidden)
    past = History.parse(history)
    engine = TransformersEngine(
        model, stop_ids=[tokenizer.eos_token_id], max_tokens=max_tokens, reuse=past.turns is None
    )
    chat = ChatPolicy(engine, tokenizer, plain_prompt("Reach G."), past)
    envs = [lake(seed, max_turns=turns) for seed in range(count)]
    trees = search(envs, chat, choose_strategy(strategy), seeds=range(count))
    return trees, model, tokenizer
