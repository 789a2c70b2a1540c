"""vLLM beside our engine on transformers: the beam rollout, the prefix cache, and an update of the weights.

`benchmarks/engine_speed.py` runs it where vLLM is installed, as in the environment of `make test-vllm`.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from tsr_gym.agents.policies.engine import Engine
from tsr_gym.agents.policies.prefix_cache import Tokens, prefix_hashes
from tsr_gym.agents.policies.transformers_engine import TransformersEngine
from tsr_gym.agents.policies.vllm_engine import VllmEngine
from tsr_gym.agents.policies.vllm_model import BLOCK, VllmModel
from tsr_gym.agents.runs.parity import probe

Sample = Callable[[list[Tokens], int], list[list[Tokens]]]
ROUNDS, UPDATES = 3, 5


class Allowed:
    """Counts the prompt tokens that a cache without blocks could find: those of the longest beginning known so far."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.asked = self.found = 0
        self._known: set[int] = set()

    def sample(self, prompts: list[Tokens], seeds: list[list[int]]) -> list[list[Tokens]]:
        """Return the engine's answers."""
        answers = [[one.token_ids for one in row] for row in self.engine.generate(prompts, seeds=seeds)]
        for prompt, row in sorted(zip(prompts, answers, strict=True)):
            hashes = prefix_hashes(prompt)
            for _ in row:
                # The last token is computed in any case, because its logits are wanted.
                lengths = [length for length, beginning in enumerate(hashes[:-1], 1) if beginning in self._known]
                self.asked += len(prompt)
                self.found += max(lengths, default=0)
                self._known |= set(hashes)
        for prompt, row in zip(prompts, answers, strict=True):
            for said in row:
                self._known |= set(prefix_hashes(prompt + said[:-1]))
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
        return sampling(
            lambda prompts, seeds: [[one.token_ids for one in row] for row in engine.generate(prompts, seeds=seeds)]
        )

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
    asked, found = (b - a for a, b in zip(before, host.prefix_cache(), strict=True))
    if asked != counted.asked:
        raise SystemExit(f"the cache was asked for {asked} tokens, and {counted.asked} were sent")
    numbers = {
        "transformers_seconds": median(ours),
        "vllm_seconds": median(theirs),
        "transformers_to_vllm": median(ours) / median(theirs),
        "cache_block": BLOCK,
        "cache_asked": asked,
        "cache_found": found,
        "cache_allowed": counted.found,
        "found_of_allowed": found / counted.found,
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
    for version in range(UPDATES):
        start = process_time()
        engine.load_weights(weights, version=version)
        alone.append(process_time() - start)
        found = probe(engine, model, temperature=1.0)
        ready.append(process_time() - start)
        if not found.difference <= 1e-4:
            raise SystemExit(f"the engine does not sample by its model: {found}")
    return {"update_seconds": median(alone), "update_to_ready_seconds": median(ready)}


def seconds_of(work: Callable[[], object]) -> float:
    """Return the processor seconds that something takes."""
    start = process_time()
    work()
    return process_time() - start
