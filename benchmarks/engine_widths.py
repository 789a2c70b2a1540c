"""How much faster the trie engine samples than transformers, by the width of a model.

Both engines sample the same prompts with the same seeds from random Qwen2 models of growing width, in turn, in one
process on one thread. Logits of the two differ by rounding, which random models of large logits make larger, so a few
samples may differ: the share of equal ones stands in the result. Numbers are medians of processor time.
A second part compares models of 0.1, 1 and 10 million parameters, also by vLLM where it is installed: microseconds of
each sampled token, and the share of them that the matrix products need at the rate of one large product.
They write tables of docs/engines.md. Run: python -m benchmarks.engine_widths [widths] [sizes]
"""

import sys
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.engine_speed import VOCABULARY, random_model
from benchmarks.measure import (
    TRIALS,
    Work,
    alternate,
    best_seconds,
    run_parts,
    run_timed,
    table_of,
    write_between_marks,
    write_result,
)
from tsr_gym.agents.policies.transformers_engine import TransformersEngine
from tsr_gym.agents.policies.trie_engine import TrieEngine
from tsr_gym.agents.policies.vllm_engine import VllmEngine, VllmModel
from tsr_gym.files import write_atomically

PAGE = Path(__file__).resolve().parents[1] / "docs" / "engines.md"
# Widths with their numbers of layers.
WIDTHS = {64: 2, 128: 2, 256: 4, 512: 4, 1024: 4}
# Width, layers and vocabulary by millions of parameters.
SIZES = {"0.1": (64, 1, 256), "1": (128, 3, VOCABULARY), "10": (384, 4, VOCABULARY)}
ROUNDS = 5


class Call(NamedTuple):
    """A call of an engine: distinct prompts, tokens of each, samples of each, and sampled tokens of each sample."""

    prompts: int
    tokens: int
    samples: int
    sampled: int


CALLS = (Call(6, 20, 2, 4), Call(64, 20, 1, 4), Call(16, 256, 4, 16))
SIZED = Call(16, 60, 4, 8)


def main() -> None:
    """Measure the named parts, or both."""
    torch.set_num_threads(1)
    names = [name for name in sys.argv[1:] if not name.startswith("--")]
    run_parts({"widths": measure_widths, "sizes": measure_sizes}, names)


def measure_widths() -> None:
    """Measure every call at every width, and write the result and the table of the page."""
    rows = [compare(width, layers, call) for width, layers in WIDTHS.items() for call in CALLS]
    write_result("engine_widths", {"rows": rows})
    write_page("widths", table(rows))


def measure_sizes() -> None:
    """Measure every engine at every size, and write the result and the table of the page."""
    rows = {name: compare_engines(*size) for name, size in SIZES.items()}
    skipped = [] if find_spec("vllm") else ["vllm: not installed"]
    write_result("engine_sizes", {"call": SIZED._asdict(), "skipped": skipped, "sizes": rows})
    write_page("sizes", table_of_sizes(rows))


def write_page(name: str, lines: str) -> None:
    """Replace a table of the page, but not in a trial."""
    if TRIALS.intersection(sys.argv[1:]):
        return
    write_atomically(PAGE, write_between_marks(PAGE.read_text(), {name: lines}).encode())


def work_of(call: Call, vocabulary: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return prompts and seeds."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(vocabulary, size=call.tokens).tolist() for _ in range(call.prompts)]
    return prompts, [[call.samples * row + sample for sample in range(call.samples)] for row in range(call.prompts)]


def compare_engines(width: int, layers: int, vocabulary: int) -> dict[str, Any]:
    """Return microseconds of each sampled token by engine, and those that the matrix products need."""
    model = random_model(width, layers, vocabulary)
    prompts, seeds = work_of(SIZED, vocabulary)
    sampled = SIZED.prompts * SIZED.samples * SIZED.sampled
    with ExitStack() as stack:
        # No token stops a sample, so that all engines sample equally many.
        stops = (vocabulary,)
        engines: dict[str, Any] = {
            name: engine(model, stop_ids=stops, max_tokens=SIZED.sampled, reuse=False)
            for name, engine in (("trie", TrieEngine), ("transformers", TransformersEngine))
        }
        if find_spec("vllm"):
            folder = stack.enter_context(TemporaryDirectory())
            model.save_pretrained(folder)
            host = VllmModel(Path(folder), cache_gib=0.5)
            stack.callback(host.close)
            engines["vllm"] = VllmEngine(host, stops, max_tokens=SIZED.sampled)

        def call(engine: Any) -> None:
            # The other engines keep no keys and values; vLLM forgets them with new weights.
            if isinstance(engine, VllmEngine):
                engine.load_weights(())
            engine.generate(prompts, seeds=seeds)

        rates = alternate(
            {name: Work(partial(call, engine), sampled, name) for name, engine in engines.items()}, ROUNDS
        )
    needed = arithmetic_seconds(model, width) / sampled
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "arithmetic_us": round(1e6 * needed, 2),
        "us": {name: round(1e6 / rate["median"], 1) for name, rate in rates.items()},
        "wall_us": {name: round(1e6 / rate["wall"], 1) for name, rate in rates.items()},
        "share": {name: round(needed * rate["median"], 3) for name, rate in rates.items()},
    }


def arithmetic_seconds(model: Any, width: int) -> float:
    """Return the seconds that the matrix products of `SIZED` need at the rate of one large product.

    Each position of the trie passes the layers once, and logits are computed where a token is sampled.
    """
    inner = sum(parameter.numel() for name, parameter in model.named_parameters() if "layers." in name)
    after = SIZED.samples * (SIZED.sampled - 1)
    products = SIZED.prompts * (inner * (SIZED.tokens + after) + model.lm_head.weight.numel() * (1 + after))
    left, right = torch.randn(512, width), torch.randn(width, 4 * width)
    return products * best_seconds(lambda: left @ right, repeats=200) / (left.numel() * 4 * width)


def table_of_sizes(rows: dict[str, dict[str, Any]]) -> str:
    """Return microseconds of a sampled token and the share of arithmetic, a row per size and a column per engine."""
    names = list(rows[next(iter(rows))]["us"])
    lines = [
        [
            f"{size} million",
            f"{row['arithmetic_us']:.1f}",
            *(f"{row['us'][name]:.0f} ({100 * row['share'][name]:.0f} %)" for name in names),
        ]
        for size, row in rows.items()
    ]
    return table_of(("parameters", "arithmetic", *names), lines)


def compare(width: int, layers: int, call: Call) -> dict[str, Any]:
    """Return milliseconds of both engines for a call, and their largest difference of log-probabilities."""
    model = random_model(width, layers)
    prompts, seeds = work_of(call, VOCABULARY)
    engines = {
        name: engine(model, stop_ids=[VOCABULARY - 1], max_tokens=call.sampled, reuse=False)
        for name, engine in (("transformers", TransformersEngine), ("trie", TrieEngine))
    }
    calls = {name: partial(engine.generate, prompts, seeds=seeds) for name, engine in engines.items()}
    pairs = list(
        zip(*([answer for row in calls[name]() for answer in row] for name in ("trie", "transformers")), strict=True)
    )
    equal = [(mine, other) for mine, other in pairs if mine.token_ids == other.token_ids]
    apart = max(abs(np.array(mine.logprobs) - other.logprobs).max() for mine, other in equal)
    works = {name: Work(run, 1, "calls") for name, run in calls.items()}
    milliseconds = {name: round(1000 / rates["median"], 3) for name, rates in alternate(works, ROUNDS).items()}
    ratio = round(milliseconds["transformers"] / milliseconds["trie"], 2)
    shared = {"equal": round(len(equal) / len(pairs), 4), "apart": float(apart)}
    return {"width": width, "layers": layers, **call._asdict(), "ms": milliseconds, "ratio": ratio} | shared


def table(rows: list[dict[str, Any]]) -> str:
    """Return the ratio of the times, a row per call and a column per width."""
    ratios = {(row["width"], *(row[name] for name in Call._fields)): row["ratio"] for row in rows}
    lines = [(", ".join(map(str, call)), *(f"{ratios[width, *call]:.2f}" for width in WIDTHS)) for call in CALLS]
    return table_of(
        ("prompts, tokens each, samples each, tokens sampled", *(f"width {width}" for width in WIDTHS)), lines
    )


if __name__ == "__main__":
    run_timed(main)
