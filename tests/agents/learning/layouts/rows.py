"""Batches of rows with and without common beginnings, and models of several families to read them."""

from dataclasses import replace

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.learning.batch import collate

WORDS = 40
SIZES = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.2, "pad_token_id": 0,
}  # fmt: skip
# Gemma's first layer sees only the last seven tokens, its second all of them.
GEMMA = {"head_dim": 8, "sliding_window": 7, "layer_types": ["sliding_attention", "full_attention"]}
FAMILIES = ("qwen2", "llama", "gemma3")


def random_model(family, *, dtype=torch.float32, seed=0):
    """Return a model with random weights, large enough that its distributions are far from uniform."""
    torch.manual_seed(seed)
    made = {
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True)),
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False)),
        "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, **GEMMA)),
    }[family]()
    return made.to(dtype).eval()


def words(draw, low, high):
    """Return some random tokens, between `low` and `high` of them."""
    size = int(torch.randint(low, high + 1, (1,), generator=draw))
    return tuple(torch.randint(1, WORDS, (size,), generator=draw).tolist())


def grown(draw, prompt, turns, branching, node=0):
    """Return the turns on every path of a random tree; paths have different lengths."""
    if turns == 0:
        return [()]
    paths = []
    for _ in range(int(torch.randint(1, branching + 1, (1,), generator=draw))):
        tokens = words(draw, 1, 5)
        turn = Turn(prompt, tokens, (0.0,) * len(tokens), float(torch.randn((), generator=draw)), True, 1)
        stops = bool(torch.rand((), generator=draw) < 0.2)
        below = [()] if stops else grown(draw, (*prompt, *tokens, *words(draw, 0, 4)), turns - 1, branching)
        paths += [(turn, *rest) for rest in below]
    return paths


def episode(turns, tree=0):
    return Trajectory(tuple(turns), False, 0.0, "beam", tree)


def random_groups(seed, *, trees=2, groups=2, turns=3, branching=3):
    """Return groups of trees with a common beginning, such as instructions."""
    draw = torch.Generator().manual_seed(seed)
    instructions = words(draw, 3, 6)
    made = []
    for group in range(groups):
        prompt = (*instructions, *words(draw, 1, 4))
        paths = [(path, tree) for tree in range(trees) for path in grown(draw, prompt, turns, branching)]
        made.append(Group(group, tuple(episode(path, tree) for path, tree in paths)))
    return made


def windowed(seed):
    """Return a group whose turns see only their own prompt: each is a separate row, and no two begin equally."""
    draw = torch.Generator().manual_seed(seed)
    starts = iter(torch.randperm(WORDS - 1, generator=draw).tolist())
    turns = [Turn((1 + next(starts), *words(draw, 1, 6)), words(draw, 1, 5), (), 1.0, True, 1) for _ in range(6)]
    turns = [replace(turn, logprobs=(0.0,) * len(turn.token_ids)) for turn in turns]
    return [Group(0, (episode(turns[:3]), episode(turns[3:])))]


def doubled(seed):
    """Return a group that has every trajectory twice."""
    (group,) = random_groups(seed, groups=1, trees=1)
    return [replace(group, trajectories=group.trajectories * 2)]


def nested():
    """Return a group with rows that are beginnings of other rows, once sampled and once only read."""
    long = Turn((1, 2, 3, 4, 5), (6, 7), (0.0, 0.0), 1.0, True, 1)
    short = Turn((1, 2), (3, 4), (0.0, 0.0), 0.0, True, 1)
    other = Turn((1, 2), (3, 9), (0.0, 0.0), 0.5, True, 1)
    return [Group(0, tuple(episode([turn]) for turn in (long, short, other, long)))]


BATCHES = {
    "trees": lambda: random_groups(0),
    "bushy trees": lambda: random_groups(1, trees=1, branching=4),
    "chains": lambda: random_groups(2, trees=3, branching=1),
    "windows": lambda: windowed(3),
    "twins": lambda: doubled(4),
    "nested": nested,
    "one row": lambda: random_groups(5, trees=1, groups=1, branching=1),
}


def batch_of(groups, model=None, *, spread=0.4, seed=0, temperature=1.0):
    """Return the batch of some groups, sampled by a policy that differs slightly from a model."""
    batch = collate(groups)
    if model is None:
        return batch
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        old = row_by_row(model, batch, temperature)[0]
    noise = spread * torch.randn(old.shape, generator=draw)
    return replace(batch, old_logprobs=torch.where(batch.sampled, old + noise.to(old), 0.0))


def row_by_row(model, batch, temperature=1.0):
    """Return log-probabilities and entropies, each row read alone, without padding, packing or sharing."""
    logprobs, entropy = [], []
    for ids, present, sampled in zip(batch.ids, batch.present, batch.sampled, strict=True):
        length = int(present.sum())
        logits = model(input_ids=ids[None, :length], use_cache=False).logits[0, :-1] / temperature
        chances = torch.log_softmax(logits, dim=-1)
        missing = len(ids) - length
        tokens = chances.gather(1, ids[1:length, None])[:, 0]
        rest = -(chances.exp() * chances).sum(dim=-1)
        filled = [torch.nn.functional.pad(part, (1, missing)) * sampled for part in (tokens, rest)]
        logprobs.append(filled[0])
        entropy.append(filled[1])
    return torch.stack(logprobs), torch.stack(entropy)
