"""What an update costs in each layout: beam trees, rows that share nothing, and ragged rows, on one thread.

Every layout reads the same rows. A pass is forward and backward with the clipped loss; an update is what the learner
does with them, planning and optimizer step included. Losses are compared before anything is timed; layouts take turns,
in processor time. The token ratio is the limit of what sharing can give: tokens of all padded rows over tokens that the
layout computes.
Run: python -m benchmarks.learner_speed [--quick]
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from itertools import product
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.measure import write_result
from tsr_gym.agents.advantages import grpo
from tsr_gym.agents.batch import Batch, collate
from tsr_gym.agents.config import LearnConfig
from tsr_gym.agents.layouts import LayoutChoice, attending, lay_out, plan_rows
from tsr_gym.agents.learner import Learner
from tsr_gym.agents.losses import clipped_policy_loss, token_weights
from tsr_gym.agents.trajectory import Group, Trajectory, Turn

LAYOUTS: tuple[LayoutChoice, ...] = ("padded", "packed", "shared", "auto")
WORDS = 1024
TURNS, WIDTH, BRANCHING = 5, 2, 4
LEARN = LearnConfig(algorithm="grpo", microbatch=8, minibatch=1000, lr=1e-6)
# By rows and columns: width, layers, heads, heads of keys, width of the feed-forward layers.
MODELS = {
    "h64/2L": (64, 2, 4, 4, 128),
    "h256/4L": (256, 4, 4, 4, 1024),
    "h896/2L (Qwen2.5-0.5B's width)": (896, 2, 14, 2, 4864),
}


class Path(NamedTuple):
    """A path of a tree in the making: its tokens, and where each answer stands in them."""

    ids: tuple[int, ...]
    said: tuple[tuple[int, int], ...]


def model_of(shape: tuple[int, int, int, int, int]) -> Any:
    """Return a Qwen2 with random weights."""
    hidden, layers, heads, key_heads, inner = shape
    config = Qwen2Config(
        vocab_size=WORDS,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    return Qwen2ForCausalLM(config).eval()


def words(draw: torch.Generator, count: int) -> tuple[int, ...]:
    """Return random tokens."""
    return tuple(torch.randint(1, WORDS, (count,), generator=draw).tolist())


def grow(draw: torch.Generator, path: Path, length: int) -> Path:
    """Return a path with one more turn: half observation, half answer."""
    seen, said = words(draw, length // 2), words(draw, length - length // 2)
    start = len(path.ids) + len(seen)
    return Path(path.ids + seen + said, (*path.said, (start, start + len(said))))


def beam_tree(draw: torch.Generator, length: int, *, every: bool) -> list[Path]:
    """Return paths of a beam search: the kept ones of the last turn, or every candidate that there was."""
    turn = length // (TURNS + 3)
    members, rejected = [Path(words(draw, length - TURNS * turn), ())], []
    for _ in range(TURNS):
        children = [grow(draw, member, turn) for member in members for _ in range(BRANCHING)]
        chosen = torch.randperm(len(children), generator=draw)[:WIDTH].tolist()
        rejected += [child for number, child in enumerate(children) if number not in chosen]
        members = [children[number] for number in chosen]
    last = [child for child in children if child not in members]
    return members + (rejected if every else last)


def lone_rows(draw: torch.Generator, length: int, *, ragged: bool) -> list[Path]:
    """Return rows that share nothing, as long as each other or not."""
    sizes = torch.linspace(0.3, 1.0, 8).tolist() if ragged else [1.0] * 8
    return [grow(draw, Path(words(draw, 4), ()), int(size * length) - 4) for size in sizes]


KINDS: Mapping[str, Callable[[torch.Generator, int], list[Path]]] = {
    "beam, candidates of the last turn": lambda draw, length: beam_tree(draw, length, every=False),
    "beam, every candidate": lambda draw, length: beam_tree(draw, length, every=True),
    "nothing shared": lambda draw, length: lone_rows(draw, length, ragged=False),
    "nothing shared, ragged": lambda draw, length: lone_rows(draw, length, ragged=True),
}


def batch_of(paths: list[Path], draw: torch.Generator) -> Batch:
    """Return paths as the batch of one group, with random rewards and the log-probabilities of a uniform policy."""
    logprob = -float(torch.tensor(WORDS).log())
    trajectories = []
    for path in paths:
        reward = float(torch.rand((), generator=draw))
        turns = [
            Turn(path.ids[:start], path.ids[start:end], (logprob,) * (end - start), reward, True, 1)
            for start, end in path.said
        ]
        trajectories.append(Trajectory(tuple(turns), False, 0.0, "beam"))
    return collate([Group(0, tuple(trajectories))])


def one_pass(model: Any, batch: Batch, layout: LayoutChoice) -> float:
    """Add up the gradients of a batch and return the loss."""
    plan = plan_rows(batch, layout=layout, microbatch=LEARN.microbatch)
    weights, advantages, total = token_weights(batch, "sequence"), grpo(batch), 0.0
    model.zero_grad()
    with attending(*([] if plan.layout == "padded" else [model])):
        for index in plan.parts:
            part = batch.rows(index)
            width = part.ids.shape[1]
            logprobs, _ = lay_out(part, plan.layout).logprobs(model)
            loss = clipped_policy_loss(
                logprobs, part.old_logprobs, advantages[index, :width], weights[index, :width]
            ).loss
            loss.backward()
            total += float(loss)
    return total


def measure(batch: Batch, shape: tuple[int, int, int, int, int], rounds: int) -> dict[str, Any]:
    """Return what a pass over a batch, and an update by it, cost in each layout."""
    model = model_of(shape)
    learners = {layout: Learner(model_of(shape), None, LEARN, layout=layout) for layout in LAYOUTS}
    works: dict[tuple[str, LayoutChoice], Callable[[], object]] = {}
    for layout, learner in learners.items():
        works["pass", layout] = partial(one_pass, model, batch, layout)
        works["update", layout] = partial(learner.update, batch)
    losses = [one_pass(model, batch, layout) for layout in LAYOUTS]
    losses += [learner.update(batch)["policy_loss"] for learner in learners.values()]
    if max(losses) - min(losses) > 1e-5:
        raise SystemExit(f"the layouts differ: {losses}")
    seconds: dict[tuple[str, LayoutChoice], list[float]] = {work: [] for work in works}
    for _, (name, work) in product(range(rounds), works.items()):
        started = process_time()
        work()
        seconds[name].append(process_time() - started)
    return {layout: _compared(batch, layout, seconds) for layout in LAYOUTS}


def _compared(
    batch: Batch, layout: LayoutChoice, seconds: Mapping[tuple[str, LayoutChoice], list[float]]
) -> dict[str, Any]:
    """Return a layout beside the padded one."""
    padded, plan = (plan_rows(batch, layout=one, microbatch=LEARN.microbatch) for one in ("padded", layout))
    ratio = padded.tokens / plan.tokens
    found: dict[str, Any] = {"read as": plan.layout, "tokens": plan.tokens, "token ratio": round(ratio, 3)}
    for what in ("pass", "update"):
        # Neighbours in time are compared, so that a busy moment falls on both.
        pairs = zip(seconds[what, "padded"], seconds[what, layout], strict=True)
        speed_up = median(one / other for one, other in pairs)
        found[what] = {
            "seconds": round(min(seconds[what, layout]), 4),
            "speed-up": round(speed_up, 3),
            "share of the token ratio": round(speed_up / ratio, 3),
        }
    return found


def main() -> None:
    """Measure and write the result."""
    quick = "--quick" in sys.argv[1:]
    torch.set_num_threads(1)
    shapes = {"h64/2L": MODELS["h64/2L"]} if quick else MODELS
    rows = []
    for name, length, kind in product(shapes, (128, 256) if quick else (128, 256, 512), KINDS):
        draw = torch.Generator().manual_seed(length)
        batch = batch_of(KINDS[kind](draw, length), draw)
        found = measure(batch, shapes[name], rounds=3 if quick else 9)
        rows.append({"model": name, "longest path": length, "rows": kind, "layouts": found})
    write_result("learner_speed", {"threads": 1, "quick": quick, "learner": asdict(LEARN), "cases": rows})


if __name__ == "__main__":
    main()
