"""A world, trees and a client that the tests of the bridges share; torch is imported only where a model is made."""

from types import SimpleNamespace
from typing import NamedTuple

import gymnasium as gym

from tsr_gym import Limits, Step, TextEnv
from tsr_gym.tree import Candidate, Node, Tree


class Counted(NamedTuple):
    task: int
    times: int


class Counting(TextEnv[Counted]):
    """Every answer earns a share of one that depends on its characters, so groups of any model have advantages."""

    draws_noise = False
    reads_tags = True
    instructions = "Write anything."

    def __init__(self, max_turns=3):
        super().__init__((), limits=Limits(max_turns=max_turns), separator=None)

    def initial(self, rng, options):
        return Counted(int(rng.integers(1000)), 0)

    def transition(self, state, action, rng):
        return Step(Counted(state.task, state.times + 1), sum(map(ord, action)) % 11 / 10, False, {})

    def observe(self, state):
        return f"{state.task}, {state.times} times"

    def is_success(self, state):
        return False


if "tests/Counting-v0" not in gym.registry:
    gym.register("tests/Counting-v0", entry_point=Counting)


def token_node(parent, depth, prompt, sampled, logprobs, text="", observation="", reward=0.0, terminated=False):
    """Return a node of a tree with tokens that are written down by hand."""
    candidate = Candidate(text, tuple(prompt), tuple(sampled), tuple(logprobs), 3 if sampled else None)
    return Node(parent, depth, candidate, observation, reward, 2 * reward, terminated, False, {"left": 2}, None)


def branching_tree():
    """Return two turns of full history: one first turn is continued twice, the other ends."""
    tree = Tree(seed=7, score_of="state", about={"noise": "fresh"})
    tree.add(token_node(None, 0, (), (), (), observation="start"))
    tree.add(token_node(0, 1, (11, 12), (1, 2), (-0.1, -0.2), "left", "wall"))
    tree.add(token_node(1, 2, (11, 12, 1, 2, 13, 14), (3,), (-0.30000000001,), "up", "hole", 0.0, True))
    tree.add(token_node(1, 2, (11, 12, 1, 2, 13, 14), (4, 5), (-0.4, -0.5), "down", "goal", 1.0, True))
    tree.add(token_node(0, 1, (11, 12), (6,), (-0.6,), "right", "hole", -1.0, True))
    tree.choose([3])
    return tree


def window_tree():
    """Return two turns whose prompts do not extend each other, and a node without tokens."""
    tree = Tree(seed=8, score_of="turn", about={})
    tree.add(token_node(None, 0, (), (), (), observation="start"))
    tree.add(token_node(0, 1, (11, 12), (1, 2), (-0.1, -0.2), "left", "wall"))
    tree.add(token_node(1, 2, (15, 16), (3,), (-0.3,), "up", "hole", 0.0, True))
    tree.add(token_node(1, 2, (), (), (), "down", "goal", 1.0, True))
    return tree


def grown_trees(count=1, *, strategy="beam(width=2, branching=3)", history="full", turns=3, max_tokens=5, hidden=32):
    """Return trees over slippery lakes, grown by a tiny model of random weights, with the model and its tokenizer."""
    import torch

    from tests.agents.tiny import chatml_tokenizer, random_qwen2
    from tests.agents.worlds import lake
    from tsr_gym.agents.episodes.search import search
    from tsr_gym.agents.policies.chat_policy import ChatPolicy
    from tsr_gym.agents.policies.prompts import History, plain_prompt
    from tsr_gym.agents.policies.transformers_engine import TransformersEngine
    from tsr_gym.agents.strategies import choose_strategy

    torch.set_num_threads(1)
    tokenizer = chatml_tokenizer()
    model = random_qwen2(tokenizer, hidden=hidden)
    past = History.parse(history)
    settings = {"stop_ids": [tokenizer.eos_token_id], "max_tokens": max_tokens, "reuse": past.turns is None}
    engine = TransformersEngine(model, **settings)
    chat = ChatPolicy(engine, tokenizer, plain_prompt("Reach G."), past)
    envs = [lake(seed, max_turns=turns) for seed in range(count)]
    return search(envs, chat, choose_strategy(strategy), seeds=range(count)), model, tokenizer


def check_logprobs(model, prompt, answer, mask, logprobs, *, temperature=0.8):
    """Compare the log-probabilities of a row, 0 where nothing was sampled, with those of a model."""
    import torch

    from tsr_gym.agents.models.logprobs import token_logprobs

    ids, start = torch.tensor([[*prompt, *answer]]), len(prompt)
    sampled = torch.tensor([[0] * start + list(mask)]) > 0
    assert sampled[0, start]
    with torch.no_grad():
        wanted, _ = token_logprobs(model, ids, torch.ones_like(sampled), sampled, temperature=temperature)
    assert torch.allclose(wanted[0, start:], torch.tensor(list(logprobs)), atol=1e-4)


class Sampling:
    """The client of verl's servers, over a tiny model; every request draws new samples, as verl's servers do.

    Attributes:
        asked: The requests: id, prompt and settings.
        model: The model that answers.
    """

    def __init__(self, *, version=3, reason="completed", silent=False):
        from tests.agents.tiny import chatml_tokenizer, random_qwen2

        self.tokenizer = chatml_tokenizer()
        self.model = random_qwen2(self.tokenizer)
        self.asked = []
        self.version, self.reason, self.silent = version, reason, silent

    def answer(self, prompt_ids, sampling_params):
        """Return token ids and log-probabilities."""
        from tsr_gym.agents.policies.transformers_engine import TransformersEngine

        settings = {name: sampling_params[name] for name in ("max_tokens", "temperature")}
        engine = TransformersEngine(self.model, stop_ids=sampling_params["stop_token_ids"], **settings)
        ((completion,),) = engine.generate([prompt_ids], seeds=[[len(self.asked)]])
        return list(completion.token_ids), list(completion.logprobs)

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        """Return an object with the fields of verl's TokenOutput."""
        self.asked.append((request_id, list(prompt_ids), dict(sampling_params)))
        ids, logprobs = self.answer(prompt_ids, sampling_params)
        steps = {"min_global_steps": self.version, "max_global_steps": self.version + 1}
        log_probs = None if self.silent else logprobs
        return SimpleNamespace(token_ids=ids, log_probs=log_probs, stop_reason=self.reason, extra_fields=steps)
