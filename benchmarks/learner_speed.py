"""What an update costs in each layout, and in TRL's trainer where it is installed: trees and lone rows, one thread.

Every layout reads the same rows. A pass is forward and backward with the clipped loss; an update is what the learner
does with them, planning and optimizer step included. Losses are compared before anything is timed; sides take turns,
in processor time, and neighbours in time are compared. The token ratio is the limit of what sharing can give: tokens of
all padded rows over tokens that the layout computes. What is kept is counted by PyTorch's hooks on saved tensors, each
storage once: activations between the forward and the backward pass, without parameters.
Run: python -m benchmarks.learner_speed [--quick] [--out FILE]
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from time import process_time
from typing import Any, NamedTuple

import torch
import tyro
from torch import Tensor

from benchmarks.learner_trees import KINDS, Shape, batch_of, beam_tree, lone_rows, model_of
from benchmarks.measure import run_timed, write_result
from tsr_gym.agents.learning.advantages import grpo
from tsr_gym.agents.learning.batch import Batch, LayoutChoice
from tsr_gym.agents.learning.layouts import attending, lay_out, plan_rows
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.learning.losses import Given, StepWeights, policy_loss, step_weights
from tsr_gym.agents.learning.settings import LearnConfig, Objective

ROWS = 4
LEARN_AS_TRL = LearnConfig(
    algorithm="grpo",
    microbatch=ROWS,
    microbatch_tokens=1,
    minibatch=1000,
    lr=1e-6,
    logits="parts",
    objective=Objective(entropy=0.0),
)
SHAPE = Shape(256, 4, 4, 4, 1024)
LENGTHS = (256, 512)
SIDES = ("trl", "padded", "packed", "shared")


class Side(NamedTuple):
    """One side of the comparison: the model that it trains, and an update of it that returns the loss."""

    model: Any
    update: Callable[[], float]


def case_of(shape: str, length: int) -> Batch:
    """Return the batch of a beam tree, or of rows that share nothing."""
    draw = torch.Generator().manual_seed(length)
    paths = beam_tree(draw, length, every=False) if shape == "tree" else lone_rows(draw, length, ragged=True)
    return batch_of(paths, draw)


def side_of(name: str, batch: Batch) -> Side:
    """Return TRL's side, or ours in a layout."""
    model = model_of(SHAPE)
    if name == "trl":
        return Side(model, _trls_update(model, batch))
    learner = Learner(model, None, LEARN_AS_TRL)
    laid = replace(batch, layout=name)  # type: ignore[arg-type]
    return Side(model, lambda: learner.update(laid)["policy_loss"])


def _trls_update(model: Any, batch: Batch) -> Callable[[], float]:
    """Return an update by TRL's loss, on micro-batches of rows of similar length as ours are."""
    trainer = _trainer(model)
    parts = [
        (len(index) / len(batch.ids), trl_inputs(batch.rows(index), grpo(batch)[index]))
        for index in plan_rows(batch, layout="padded", microbatch=ROWS).parts
    ]
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARN_AS_TRL.lr, betas=LEARN_AS_TRL.betas, weight_decay=LEARN_AS_TRL.weight_decay
    )

    def update() -> float:
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for share, inputs in parts:
            # Its mean over the rows of a micro-batch, weighted to the mean over all rows.
            loss = share * trainer.compute_loss(trainer.model, inputs)
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), LEARN_AS_TRL.grad_clip)
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
        epsilon=LEARN_AS_TRL.objective.clip_low,
        epsilon_high=LEARN_AS_TRL.objective.clip_high,
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
        # True where the model sampled, False on the environment's tokens within a completion.
        "tool_mask": completion(batch.sampled.long()),
        "old_per_token_logps": completion(batch.old_logprobs),
        "advantages": completion(advantages),
        "num_items_in_batch": batch.sampled.sum(),
    }


def trl_rows(quick: bool) -> dict[str, Any]:
    """Return updates of both sides, compared and timed in turns."""
    from importlib.metadata import version

    rows = [
        {"rows": shape, "longest path": length} | _compared_with_trl(shape, length, 3 if quick else 9)
        for length in (LENGTHS[:1] if quick else LENGTHS)
        for shape in ("tree", "nothing shared, ragged")
    ]
    about = {"trl": version("trl"), "model": SHAPE._asdict(), "micro-batch": f"{ROWS} rows", "dtype": "float32"}
    return about | {"loss": "grpo", "peak memory": "growth of the resident set in one update", "cases": rows}


def _compared_with_trl(shape: str, length: int, rounds: int) -> dict[str, Any]:
    batch = case_of(shape, length)
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
    result: dict[str, Any] = {"tokens of all rows": tokens, "token ratio": round(padded / shared, 3)}
    for name in sides:
        pairs = zip(seconds["trl"], seconds[name], strict=True)
        result[name] = {
            "tokens per second": round(tokens / median(seconds[name])),
            "speed-up over TRL": round(median(ours / other for ours, other in pairs), 3),
            "peak MiB": round(_peak(name, shape, length) / 2**20, 1),
        }
    return result


def _agree(sides: dict[str, Side]) -> None:
    """Exit where losses and gradients of a first update of the sides differ."""
    losses, gradients = [], []
    for side in sides.values():
        losses.append(side.update())
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in side.model.parameters()]))
    worst = max(float((gradient - gradients[0]).norm() / gradients[0].norm()) for gradient in gradients)
    if max(losses) - min(losses) > 1e-5 or worst > 1e-4:
        raise SystemExit(f"the sides differ: losses {losses}, gradients by {worst:g}")


def _peak(side: str, shape: str, length: int) -> int:
    """Return by how many bytes a fresh process grows in an update."""
    command = [sys.executable, "-m", "benchmarks.learner_speed", "--peak", side, shape, str(length)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(json.loads(done.stdout.splitlines()[-1]))


def _resident(name: str) -> int:
    """Return a line of /proc/self/status in bytes."""
    with open("/proc/self/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def _grown(side: str, shape: str, length: int) -> int:
    update = partial(side_of(side, case_of(shape, length)).update)
    before = _resident("VmRSS:")
    update()
    return _resident("VmHWM:") - before


LAYOUTS: tuple[LayoutChoice, ...] = ("padded", "packed", "shared", "auto")
LEARN = LearnConfig(algorithm="grpo", microbatch=8, microbatch_tokens=1, minibatch=1000, lr=1e-6)


class Setting(NamedTuple):
    """A model, the lengths of its longest paths, which rows, and how often it is timed."""

    shape: Shape
    lengths: tuple[int, ...]
    kinds: tuple[str, ...]
    rounds: int


ALL = tuple(KINDS)
SETTINGS = {
    "h64/2L": Setting(Shape(64, 2, 4, 4, 128), (128, 256, 512), ALL, 15),
    "h256/4L": Setting(Shape(256, 4, 4, 4, 1024), (128, 256), ALL, 5),
    "h896/2L (Qwen2.5-0.5B's width)": Setting(
        Shape(896, 2, 14, 2, 4864), (256,), ("beam, candidates of the last turn", "nothing shared, ragged"), 3
    ),
}
QUICK = {"h64/2L": Setting(Shape(64, 2, 4, 4, 128), (128, 256), ALL, 3)}
AIMS = {
    "shared": "pass: >= 0.9 of the token ratio for paths of 256 tokens and more, >= 0.8 for 128",
    "auto": "never slower than padded by more than 5 %",
    "beside TRL": ">= 1.0 with flat padded rows, >= 0.9 of the token ratio on trees, with less memory",
}


class Options(NamedTuple):
    """What is measured, and where to."""

    quick: bool = False
    """The smallest model, short paths, few rounds; written beside the record, not over it."""
    out: Path | None = None
    """Another place for the result."""


def one_pass(model: Any, batch: Batch, advantages: Tensor, layout: LayoutChoice) -> float:
    """Add up the gradients of a batch, given its advantages, and return the loss."""
    plan = plan_rows(batch, layout=layout, microbatch=LEARN.microbatch)
    objective, total = Objective(entropy=0.0), 0.0
    weights = step_weights(objective, batch).policy
    model.zero_grad()
    with attending(*([] if plan.layout == "padded" else [model])):
        for index in plan.parts:
            part = batch.rows(index)
            width = part.ids.shape[1]
            logprobs, entropy = lay_out(part, plan.layout).logprobs(model)
            # No bonus is paid for it, so that its graph is let go before the backward pass.
            entropy = entropy.detach()
            given = Given.of(part, advantages[index, :width], StepWeights(weights[index, :width]))
            loss = policy_loss(objective, logprobs, entropy, given).loss
            loss.backward()
            total += float(loss.detach())
    return total


def bytes_kept(model: Any, work: Callable[[], object]) -> int:
    """Return the most bytes that a work holds when a backward pass reads them, without the parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, list[int]] = {}
    most = 0

    def keep(tensor: Tensor) -> "_Kept":
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept.setdefault(storage.data_ptr(), [storage.nbytes(), 0])[1] += 1
        # A result that knows what made it, and is kept for that, would never be let go.
        return _Kept(tensor.detach(), kept)

    # Not when something is kept: what no loss goes through is let go before the backward pass.
    def ask(record: "_Kept") -> Tensor:
        nonlocal most
        most = max(most, sum(size for size, _ in kept.values()))
        return record.tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, ask):
        work()
    return most


class _Kept:
    """A saved tensor, which is no longer counted once it is let go."""

    def __init__(self, tensor: Tensor, kept: dict[int, list[int]]) -> None:
        self.tensor, self.kept = tensor, kept

    def __del__(self) -> None:
        where = self.tensor.untyped_storage().data_ptr()
        if where in self.kept:
            self.kept[where][1] -= 1
            if not self.kept[where][1]:
                del self.kept[where]


def measure(batch: Batch, shape: Shape, rounds: int) -> dict[str, Any]:
    """Return seconds of a pass and of an update, and kept bytes, by layout."""
    model, advantages = model_of(shape), grpo(batch)
    laid = {layout: replace(batch, layout=layout) for layout in LAYOUTS}
    learners = {layout: Learner(model_of(shape), None, LEARN) for layout in LAYOUTS}
    works: dict[tuple[str, LayoutChoice], Callable[[], object]] = {}
    for layout, learner in learners.items():
        works["pass", layout] = partial(one_pass, model, batch, advantages, layout)
        works["update", layout] = partial(learner.update, laid[layout])
    losses = [one_pass(model, batch, advantages, layout) for layout in LAYOUTS]
    losses += [learner.update(laid[layout])["policy_loss"] for layout, learner in learners.items()]
    if max(losses) - min(losses) > 1e-5:
        raise SystemExit(f"the layouts differ: {losses}")
    kept = {layout: bytes_kept(model, works["pass", layout]) for layout in LAYOUTS}
    seconds: dict[tuple[str, LayoutChoice], list[float]] = {work: [] for work in works}
    # What is compared stands next to each other in time: first all passes of a round, then all updates.
    in_turns = sorted(works, key=lambda work: work[0])
    for _, name in product(range(rounds), in_turns):
        started = process_time()
        works[name]()
        seconds[name].append(process_time() - started)
    return {layout: _compared(batch, layout, seconds) | {"bytes kept": kept[layout]} for layout in LAYOUTS}


def _compared(
    batch: Batch, layout: LayoutChoice, seconds: Mapping[tuple[str, LayoutChoice], list[float]]
) -> dict[str, Any]:
    """Return the speed-up of a layout over the padded one."""
    padded, plan = (plan_rows(batch, layout=own, microbatch=LEARN.microbatch) for own in ("padded", layout))
    ratio = padded.tokens / plan.tokens
    result: dict[str, Any] = {"read as": plan.layout, "tokens": plan.tokens, "token ratio": round(ratio, 3)}
    for what in ("pass", "update"):
        pairs = zip(seconds[what, "padded"], seconds[what, layout], strict=True)
        speed_up = median(own / other for own, other in pairs)
        result[what] = {
            "seconds": round(min(seconds[what, layout]), 4),
            "speed-up": round(speed_up, 3),
            "share of the token ratio": round(speed_up / ratio, 3),
        }
    return result


def beside_trl(quick: bool) -> Any:
    """Return our updates and TRL's, or the reason why TRL was not measured."""
    if find_spec("trl") is None:
        return "not measured: TRL is not installed here; make learner-speed measures it in an environment of its own"
    return trl_rows(quick)


def main(options: Options) -> None:
    """Measure and write the result."""
    torch.set_num_threads(1)
    rows = []
    for name, (shape, lengths, kinds, rounds) in (QUICK if options.quick else SETTINGS).items():
        for length, form in product(lengths, kinds):
            draw = torch.Generator().manual_seed(length)
            batch = batch_of(KINDS[form](draw, length), draw)
            layouts = measure(batch, shape, rounds)
            rows.append({"model": name, "longest path": length, "rows": form, "layouts": layouts})
    numbers = {
        "threads": 1,
        "quick": options.quick,
        "aims": AIMS,
        "learner": asdict(LEARN),
        "cases": rows,
        "beside TRL": beside_trl(options.quick),
    }
    write_result("learner_speed", numbers, out=options.out)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        # A separate process, which a comparison of peak memory starts: --peak SIDE ROWS LENGTH.
        torch.set_num_threads(1)
        print(json.dumps(_grown(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
    else:
        run_timed(lambda: main(tyro.cli(Options, description=__doc__)))
