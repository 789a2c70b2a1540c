"""What the learner's measurements learn from: models with random weights, beam trees, and rows that share nothing."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.learning.batch import Batch, collate

TURNS, WIDTH, BRANCHING = 5, 2, 4


class Shape(NamedTuple):
    """The numbers of a Qwen2: width, layers, heads, heads of keys, width of the feed-forward layers, words."""

    hidden: int
    layers: int
    heads: int
    key_heads: int
    inner: int
    words: int = 1024


class Path(NamedTuple):
    """A path of a tree in the making: its tokens, and where each answer stands in them."""

    ids: tuple[int, ...]
    said: tuple[tuple[int, int], ...]


def model_of(shape: Shape, *, context: int = 2048, device: str = "cpu") -> Any:
    """Return a Qwen2 with random weights, head and embedding tied."""
    config = Qwen2Config(
        vocab_size=shape.words,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    with torch.device(device):
        return Qwen2ForCausalLM(config).eval()


def words(draw: torch.Generator, count: int, vocabulary: int) -> tuple[int, ...]:
    """Return random tokens."""
    return tuple(torch.randint(1, vocabulary, (count,), generator=draw).tolist())


def grow(draw: torch.Generator, path: Path, length: int, vocabulary: int) -> Path:
    """Return a path with one more turn: half observation, half answer."""
    seen, sampled = words(draw, length // 2, vocabulary), words(draw, length - length // 2, vocabulary)
    start = len(path.ids) + len(seen)
    return Path(path.ids + seen + sampled, (*path.said, (start, start + len(sampled))))


def beam_tree(
    draw: torch.Generator, length: int, *, every: bool, vocabulary: int = 1024, turns: int = TURNS, width: int = WIDTH
) -> list[Path]:
    """Return paths of a beam search: all candidates of the last turn, or every candidate that there was."""
    turn = length // (turns + 3)
    members, rejected = [Path(words(draw, length - turns * turn, vocabulary), ())], []
    for _ in range(turns):
        children = [grow(draw, member, turn, vocabulary) for member in members for _ in range(BRANCHING)]
        picks = torch.randperm(len(children), generator=draw)[:width].tolist()
        rejected += [child for number, child in enumerate(children) if number not in picks]
        members = [children[number] for number in picks]
    last = [child for child in children if child not in members]
    return members + (rejected if every else last)


def lone_rows(draw: torch.Generator, length: int, *, ragged: bool, vocabulary: int = 1024) -> list[Path]:
    """Return rows that share nothing, as long as each other or not."""
    sizes = torch.linspace(0.3, 1.0, 8).tolist() if ragged else [1.0] * 8
    return [grow(draw, Path(words(draw, 4, vocabulary), ()), int(size * length) - 4, vocabulary) for size in sizes]


KINDS: Mapping[str, Callable[[torch.Generator, int], list[Path]]] = {
    "beam, candidates of the last turn": partial(beam_tree, every=False),
    "beam, every candidate": partial(beam_tree, every=True),
    "nothing shared": partial(lone_rows, ragged=False),
    "nothing shared, ragged": partial(lone_rows, ragged=True),
}


def batch_of(paths: list[Path], draw: torch.Generator, vocabulary: int = 1024) -> Batch:
    """Return paths as the batch of one group, with random rewards and the log-probabilities of a uniform policy."""
    logprob = -float(torch.tensor(vocabulary).log())
    trajectories = []
    for path in paths:
        reward = float(torch.rand((), generator=draw))
        turns = [
            Turn(path.ids[:start], path.ids[start:stop], (logprob,) * (stop - start), reward, True, 1)
            for start, stop in path.said
        ]
        trajectories.append(Trajectory(tuple(turns), False, 0.0, "beam"))
    return collate([Group(0, tuple(trajectories))])
