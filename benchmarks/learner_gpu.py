"""The learner on one GPU: Qwen2.5's shapes with random weights, 32 trajectories of 4,096 tokens from four beam trees.

An update is `Learner.update` from the batch on the CPU to the optimizer step, timed by the wall between two
synchronisations after a first one that is not timed. Parameters, gradients and AdamW's moments are float32; matrix
products run in bfloat16 by autocast, because steps of 1e-6 vanish in bfloat16 weights: 16 bytes a parameter, 49 GB for
3B, and 6 GB more for the products' copy. Logits are taken in parts. Of several micro-batch sizes the largest is taken
that fits, and only where none does are activations computed again; what was tried is in the record.

Model FLOP utilisation is work over time over the card's dense bfloat16 peak, with
``work = 6 (N - V h) tokens + 6 V h sampled + 12 L H pairs``: N parameters, embedding and output layer being the same
V h of them, which count only where logits are computed; H = heads times their width; pairs of a token and one that it
sees, itself included; nothing that is computed again counts. It is reported with the usual 6 N per token. The speed-up
of shared rows is over packed ones, with the ratio of their tokens.

A machine with torch 2.11 and transformers 5.17 also needs two wheels, both of Python alone: gymnasium and
farama-notifications.
Run: python -m benchmarks.learner_gpu, or to try it: python -m benchmarks.learner_gpu --device cpu --tiny --out FILE
"""

import gc
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch

from benchmarks.learner_trees import Shape, batch_of, beam_tree, model_of
from benchmarks.measure import run_timed, write_result
from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.learning.layouts import LayoutName, grow_forest, plan_rows
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.models.sharding import compile_layers

NO_GPU = 2
# Dense bfloat16, in FLOP per second, by the vendor's datasheets of the SXM cards.
PEAKS = {"H100": 989.4e12, "H200": 989.4e12, "A100": 312e12, "B200": 2250e12}
AIMS = {"0.5B": "packed: utilisation >= 0.30", "3B": "packed: utilisation >= 0.45"}


class Attempt(NamedTuple):
    """How much goes through the model at a time: rows of the longest, and whether activations are computed again."""

    microbatch: int
    recompute: bool


class Case(NamedTuple):
    """A model, its trees, and what to try, the fastest first."""

    shape: Shape
    trees: int
    length: int
    attempts: tuple[Attempt, ...]


CASES = {
    "0.5B": Case(
        Shape(896, 24, 14, 2, 4864, 151936),
        4,
        4096,
        (Attempt(4, False), Attempt(2, False), Attempt(1, False), Attempt(2, True)),
    ),
    "3B": Case(
        Shape(2048, 36, 16, 2, 11008, 151936),
        4,
        4096,
        (Attempt(2, False), Attempt(1, False), Attempt(4, True), Attempt(1, True)),
    ),
}
TINY = {"tiny": Case(Shape(32, 2, 4, 2, 64, 128), 2, 64, (Attempt(4, False),))}
LAYOUTS: tuple[LayoutName, ...] = ("packed", "shared")


class Options(NamedTuple):
    """Where it runs, and where its numbers go.

    Attributes:
        device: A GPU, or cpu to try the script.
        tiny: A model of a few thousand parameters and short paths.
        plain: Without what compiled layers take.
        rounds: Updates that are timed.
        seconds: No case is begun after so long.
        out: Another place for the result.
    """

    device: str
    tiny: bool
    plain: bool
    rounds: int
    seconds: float
    out: Path | None


def read_options(arguments: list[str]) -> Options:
    """Return the options of the command line."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--out", type=Path)
    return Options(**vars(parser.parse_args(arguments)))


def batch_for(case: Case) -> Batch:
    """Return the last candidates of several beam trees as one group."""
    draw = torch.Generator().manual_seed(0)
    words = case.shape.words
    paths = [path for _ in range(case.trees) for path in beam_tree(draw, case.length, every=False, vocabulary=words)]
    return batch_of(paths, draw, words)


class Work(NamedTuple):
    """What a pass over rows in a layout takes.

    Attributes:
        tokens: That the model computes.
        sampled: Different ones whose logits are computed.
        pairs: Of a token and one that it sees.
    """

    tokens: int
    sampled: int
    pairs: int


def work_of(batch: Batch, layout: LayoutName, microbatch: int) -> Work:
    """Count what the micro-batches of a plan take."""
    counts = []
    for index in plan_rows(batch, layout=layout, microbatch=microbatch).parts:
        part = batch.rows(index)
        forest = grow_forest(part, share=layout == "shared")
        sampled = int(forest.place[part.sampled].unique().numel())
        counts.append((len(forest.ids), sampled, int((forest.depth + 1).sum())))
    return Work(*(sum(column) for column in zip(*counts, strict=True)))


def flops(shape: Shape, parameters: int, work: Work) -> tuple[float, float]:
    """Return the FLOP of an update as the head of this file counts them, and as 6 N per token plus attention."""
    head = shape.words * shape.hidden
    attention = 12.0 * shape.layers * shape.hidden * work.pairs
    counted = 6.0 * (parameters - head) * work.tokens + 6.0 * head * work.sampled
    return counted + attention, 6.0 * parameters * work.tokens + attention


def timed(update: Callable[[], object], rounds: int, device: str) -> list[float]:
    """Return the seconds of some updates after a first one."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else (lambda: None)
    seconds = []
    for _ in range(rounds + 1):
        wait()
        started = perf_counter()
        update()
        wait()
        seconds.append(perf_counter() - started)
    return seconds


def attempted(case: Case, attempt: Attempt, layout: LayoutName, options: Options, compiled: bool) -> dict[str, Any]:
    """Return seconds and memory of the updates of a new model.

    Raises:
        torch.OutOfMemoryError: They do not fit.
    """
    on_gpu = options.device.startswith("cuda")
    model = model_of(case.shape, context=case.length, device=options.device)
    if compiled:
        compile_layers(model, backend="inductor" if on_gpu else "eager")
    config = LearnConfig(
        algorithm="grpo",
        microbatch=attempt.microbatch,
        microbatch_tokens=1,
        recompute=attempt.recompute,
        minibatch=1000,
        lr=1e-6,
        logits="parts",
    )
    learner = Learner(model, None, config, autocast=torch.bfloat16)
    batch = replace(batch_for(case), layout=layout)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds = timed(partial(learner.update, batch), options.rounds, options.device)
    work = work_of(batch, layout, attempt.microbatch)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    each = median(seconds[1:])
    counted, usual = flops(case.shape, parameters, work)
    peak = _peak_of_card(options.device)
    return {
        "parameters": parameters,
        "micro-batch": f"{attempt.microbatch * case.length} tokens",
        "recompute": attempt.recompute,
        "tokens": work.tokens,
        "sampled tokens": work.sampled,
        "seconds of updates": [round(second, 4) for second in seconds],
        "tokens per second": round(work.tokens / each),
        "tokens of all rows per second": round(int(batch.present.sum()) / each),
        "TFLOP per second": round(counted / each / 1e12, 3),
        "utilisation": None if peak is None else round(counted / each / peak, 4),
        "utilisation, 6 N per token": None if peak is None else round(usual / each / peak, 4),
        "peak GiB": round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else None,
    }


def _peak_of_card(device: str) -> float | None:
    if not device.startswith("cuda"):
        return None
    name = torch.cuda.get_device_name()
    return next((peak for card, peak in PEAKS.items() if card in name), None)


def measured(case: Case, layout: LayoutName, options: Options, compiled: bool) -> dict[str, Any]:
    """Return the first attempt that fits, or what went wrong, and what was tried before."""
    tried = []
    for attempt in case.attempts:
        try:
            return attempted(case, attempt, layout, options, compiled) | {"did not fit": tried}
        except torch.OutOfMemoryError:
            tried.append(attempt._asdict())
        except Exception as error:
            # What a compiler cannot do is a result as well, and other cases are still to come.
            return {"failed": f"{type(error).__name__}: {str(error)[:500]}", "did not fit": tried}
        # Out of the handler, where nothing holds the failed attempt any more.
        _forget()
    return {"failed": "nothing that was tried fits", "did not fit": tried}


def _forget() -> None:
    gc.collect()
    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def compared(options: Options, cases: dict[str, Case]) -> list[dict[str, Any]]:
    """Return all cases, plain ones first, with the speed-up of shared rows over packed ones."""
    started = perf_counter()
    rows = []
    for compiled in (False,) if options.plain else (False, True):
        for name, case in cases.items():
            by_layout: dict[str, Any] = {}
            for layout in LAYOUTS:
                if perf_counter() - started > options.seconds:
                    by_layout[layout] = {"failed": f"not run: {options.seconds:g} seconds were over"}
                    continue
                by_layout[layout] = measured(case, layout, options, compiled)
                _forget()
            rows.append({"model": name, "compiled layers": compiled} | by_layout | _speed_up(by_layout))
    return rows


def _speed_up(by_layout: dict[str, Any]) -> dict[str, Any]:
    packed, shared = (by_layout[layout] for layout in LAYOUTS)
    if "failed" in packed or "failed" in shared:
        return {}
    ratio = packed["tokens"] / shared["tokens"]
    speed_up = median(packed["seconds of updates"][1:]) / median(shared["seconds of updates"][1:])
    return {
        "speed-up of shared": round(speed_up, 3),
        "token ratio": round(ratio, 3),
        "share of the token ratio": round(speed_up / ratio, 3),
    }


def card(device: str) -> dict[str, Any]:
    """Return the device and the versions of a measurement."""
    if not device.startswith("cuda"):
        return {"device": device}
    about = torch.cuda.get_device_properties(torch.device(device))
    return {
        "device": about.name,
        "GiB": round(about.total_memory / 2**30, 1),
        "multiprocessors": about.multi_processor_count,
        "cuda": torch.version.cuda,
        "bfloat16 peak": _peak_of_card(device),
    }


def main(options: Options) -> None:
    """Measure and write the result."""
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("There is no GPU here that PyTorch can use; nothing was measured or written.", file=sys.stderr)
        raise SystemExit(NO_GPU)
    torch.set_float32_matmul_precision("high")
    cases = TINY if options.tiny else CASES
    numbers = {"torch": torch.__version__, **card(options.device), "aims": AIMS, "tiny": options.tiny}
    started = perf_counter()
    rows = compared(options, cases)
    numbers |= {"seconds": round(perf_counter() - started), "cases": rows}
    write_result("learner_gpu", numbers, out=options.out)


if __name__ == "__main__":
    run_timed(lambda: main(read_options(sys.argv[1:])))
