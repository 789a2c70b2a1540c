"""An update by our learner beside one by TRL's GRPOTrainer: the same model, tokens, advantages, loss and optimizer.

TRL computes its loss as its trainer does (`compute_loss`), a micro-batch at a time; then gradients are clipped and
AdamW takes a step. Ours is `Learner.update`, which also plans, estimates the advantages and lays out. Losses and
gradients are compared before anything is timed. Peak memory is what the resident set of a process of its own grew by in
one update, its libraries and its model being there before.
Run by learner_speed, in an environment with TRL; alone: python -m benchmarks.learner_trl --peak SIDE KIND LENGTH
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from tempfile import mkdtemp
from time import process_time
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.learner_trees import Shape, batch_of, beam_tree, lone_rows, model_of
from tsr_gym.agents.learning.advantages import grpo
from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.learning.layouts import plan_rows
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.learning.objective import Objective
from tsr_gym.agents.learning.settings import LearnConfig

ROWS = 4
LEARN = LearnConfig(
    algorithm="grpo", microbatch=ROWS, minibatch=1000, lr=1e-6, logits="parts", objective=Objective(entropy=0.0)
)
SHAPE = Shape(256, 4, 4, 4, 1024)
LENGTHS = (256, 512)
SIDES = ("trl", "padded", "packed", "shared")


class Side(NamedTuple):
    """One side of the comparison: the model that it trains, and an update of it that returns the loss."""

    model: Any
    update: Callable[[], float]


def case_of(kind: str, length: int) -> Batch:
    """Return the batch of a beam tree, or of rows that share nothing."""
    draw = torch.Generator().manual_seed(length)
    paths = beam_tree(draw, length, every=False) if kind == "tree" else lone_rows(draw, length, ragged=True)
    return batch_of(paths, draw)


def side_of(name: str, batch: Batch) -> Side:
    """Return TRL's side, or ours in a layout."""
    model = model_of(SHAPE)
    if name == "trl":
        return Side(model, _trls_update(model, batch))
    learner = Learner(model, None, LEARN)
    laid = replace(batch, layout=name)  # type: ignore[arg-type]
    return Side(model, lambda: learner.update(laid)["policy_loss"])


def _trls_update(model: Any, batch: Batch) -> Callable[[], float]:
    """Return an update by TRL's loss, on micro-batches of rows of similar length as ours are."""
    trainer = _trainer(model)
    parts = [
        (len(index) / len(batch.ids), trl_inputs(batch.rows(index), grpo(batch)[index]))
        for index in plan_rows(batch, layout="padded", microbatch=ROWS).parts
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARN.lr, betas=LEARN.betas, weight_decay=LEARN.weight_decay)

    def update() -> float:
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for share, inputs in parts:
            # Its mean over the rows of a micro-batch, weighted to the mean over all rows.
            loss = share * trainer.compute_loss(trainer.model, inputs)
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), LEARN.grad_clip)
        optimizer.step()
        return total

    return update


def _trainer(model: Any) -> Any:
    """Return TRL's trainer of a model, on one thread, in float32, without anything recomputed."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    settings = GRPOConfig(
        mkdtemp(),
        loss_type="grpo",
        beta=0.0,
        epsilon=LEARN.objective.clip_low,
        epsilon_high=LEARN.objective.clip_high,
        temperature=1.0,
        num_generations=2,
        per_device_train_batch_size=ROWS,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        report_to="none",
    )
    names = {f"w{number}": number for number in range(SHAPE.words)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(names, unk_token="w0")), eos_token="w0", pad_token="w0"
    )
    trainer = GRPOTrainer(
        model,
        reward_funcs=lambda completions, **columns: [0.0] * len(completions),
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["w1"]}),
        processing_class=tokenizer,
    )
    trainer.model.eval()
    return trainer


def trl_inputs(batch: Batch, advantages: Tensor) -> dict[str, Tensor]:
    """Return rows as TRL wants them: prompts padded on the left, all that follows padded on the right."""
    starts = [int(row.nonzero()[0]) for row in batch.sampled]
    lengths = batch.present.sum(dim=1).tolist()
    width = max(length - start for start, length in zip(starts, lengths, strict=True))

    def prompt(values: Tensor) -> Tensor:
        cut = [row[:start] for row, start in zip(values, starts, strict=True)]
        return torch.stack([torch.nn.functional.pad(row, (max(starts) - len(row), 0)) for row in cut])

    def completion(values: Tensor) -> Tensor:
        cut = [row[start:length] for row, start, length in zip(values, starts, lengths, strict=True)]
        return torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in cut])

    return {
        "prompt_ids": prompt(batch.ids),
        "prompt_mask": prompt(batch.present.long()),
        "completion_ids": completion(batch.ids),
        "completion_mask": completion(batch.present.long()),
        # What the environment said within a completion.
        "tool_mask": completion(batch.sampled.long()),
        "old_per_token_logps": completion(batch.old_logprobs),
        "advantages": completion(advantages),
        "num_items_in_batch": batch.sampled.sum(),
    }


def trl_rows(quick: bool) -> dict[str, Any]:
    """Return updates of both sides, compared and timed in turns."""
    from importlib.metadata import version

    rows = [
        {"rows": kind, "longest path": length} | _compared(kind, length, 3 if quick else 9)
        for length in (LENGTHS[:1] if quick else LENGTHS)
        for kind in ("tree", "nothing shared, ragged")
    ]
    about = {"trl": version("trl"), "model": SHAPE._asdict(), "micro-batch": f"{ROWS} rows", "dtype": "float32"}
    return about | {"loss": "grpo", "peak memory": "growth of the resident set in one update", "cases": rows}


def _compared(kind: str, length: int, rounds: int) -> dict[str, Any]:
    batch = case_of(kind, length)
    sides = {name: side_of(name, batch) for name in SIDES}
    _agree(sides)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            started = process_time()
            side.update()
            seconds[name].append(process_time() - started)
    tokens = int(batch.present.sum())
    padded, shared = (plan_rows(batch, layout=name, microbatch=ROWS).tokens for name in ("padded", "shared"))
    found: dict[str, Any] = {"tokens of all rows": tokens, "token ratio": round(padded / shared, 3)}
    for name in sides:
        pairs = zip(seconds["trl"], seconds[name], strict=True)
        found[name] = {
            "tokens per second": round(tokens / median(seconds[name])),
            "speed-up over TRL": round(median(one / other for one, other in pairs), 3),
            "peak MiB": round(_peak(name, kind, length) / 2**20, 1),
        }
    return found


def _agree(sides: dict[str, Side]) -> None:
    """Compare losses and gradients of a first update of each side.

    Raises:
        SystemExit: They differ.
    """
    losses, gradients = [], []
    for side in sides.values():
        losses.append(side.update())
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in side.model.parameters()]))
    worst = max(float((one - gradients[0]).norm() / gradients[0].norm()) for one in gradients)
    if max(losses) - min(losses) > 1e-5 or worst > 1e-4:
        raise SystemExit(f"the sides differ: losses {losses}, gradients by {worst:g}")


def _peak(side: str, kind: str, length: int) -> int:
    """Return by how many bytes a fresh process grows in an update."""
    command = [sys.executable, "-m", "benchmarks.learner_trl", "--peak", side, kind, str(length)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(json.loads(done.stdout.splitlines()[-1]))


def _resident(name: str) -> int:
    """Return a line of /proc/self/status in bytes."""
    with open("/proc/self/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def _grown(side: str, kind: str, length: int) -> int:
    update = partial(side_of(side, case_of(kind, length)).update)
    before = _resident("VmRSS:")
    update()
    return _resident("VmHWM:") - before


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] != ["--peak"] or len(sys.argv) != 5:
        raise SystemExit("wanted --peak SIDE KIND LENGTH")
    print(json.dumps(_grown(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
