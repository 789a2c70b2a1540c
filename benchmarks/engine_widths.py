"""How much faster the trie engine samples than transformers, by the width of a model.

Both engines sample the same prompts with the same seeds from random Qwen2 models of growing width, in turn, in one
process on one thread. Logits of the two differ by rounding, which random models of large logits make larger, so a few
samples may differ: the share of equal ones stands in the result. Numbers are medians of processor time.
It writes a table of docs/engines.md. Run: python -m benchmarks.engine_widths
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.engine_speed import VOCABULARY, random_model
from benchmarks.measure import Work, alternate, table_of, write_between_marks, write_result
from tsr_gym.agents.policies.transformers_engine import TransformersEngine
from tsr_gym.agents.policies.trie_engine import TrieEngine
from tsr_gym.files import write_atomically

PAGE = Path(__file__).resolve().parents[1] / "docs" / "engines.md"
# Widths with their numbers of layers.
WIDTHS = {64: 2, 128: 2, 256: 4, 512: 4, 1024: 4}
ROUNDS = 5


class Call(NamedTuple):
    """A call of an engine: distinct prompts, tokens of each, samples of each, and sampled tokens of each sample."""

    prompts: int
    tokens: int
    samples: int
    sampled: int


CALLS = (Call(6, 20, 2, 4), Call(64, 20, 1, 4), Call(16, 256, 4, 16))


def main() -> None:
    """Measure every call at every width, and write the result and the table of the page."""
    torch.set_num_threads(1)
    rows = [compare(width, layers, call) for width, layers in WIDTHS.items() for call in CALLS]
    write_result("engine_widths", {"rows": rows})
    write_atomically(PAGE, write_between_marks(PAGE.read_text(), {"widths": table(rows)}).encode())


def compare(width: int, layers: int, call: Call) -> dict[str, Any]:
    """Return milliseconds of both engines for a call, and their largest difference of log-probabilities."""
    model, rng = random_model(width, layers), np.random.default_rng(0)
    prompts = [rng.integers(VOCABULARY, size=call.tokens).tolist() for _ in range(call.prompts)]
    seeds = [[call.samples * row + sample for sample in range(call.samples)] for row in range(call.prompts)]
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
    main()
