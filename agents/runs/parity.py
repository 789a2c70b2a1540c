"""Parity: a check, after every update of an engine's weights, that it samples from the policy that the learner trains.

An output head that was not updated, or cached keys and values of older weights, raise no error. They only make every
probability ratio of the loss wrong, and training worse. So the engine continues a few fixed prompts, and the learner
computes the log-probabilities of the same tokens.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.policies.engine import Completion, Engine
from tsr_gym.errors import EngineFailed

if TYPE_CHECKING:
    from tsr_gym.agents.episodes.model_player import ModelPlayer
    from tsr_gym.agents.learning.learner import Learner

# Tokens that the engine samples after each prompt, and the lengths of the prompts. One is longer than the blocks of 16
# or 32 tokens in which vLLM caches keys and values, so that a stale block is noticed.
TOKENS = 4
LENGTHS = (5, 16, 72)
SEED = 20
# Differences in nats that rounding can explain; measured were 2e-6 in float32 and 4e-3 in bfloat16.
ROUNDING = {torch.float32: 1e-3, torch.bfloat16: 0.25}


class Parity(NamedTuple):
    """The largest difference between an engine and its learner.

    Attributes:
        engine: The engine's log-probability of the token with the largest difference.
        learner: The learner's log-probability of the same token.
    """

    engine: float
    learner: float

    @property
    def difference(self) -> float:
        """Absolute difference in nats."""
        return abs(self.engine - self.learner)


def probe(engine: Engine, model: Any, *, temperature: float, autocast: torch.dtype | None = None) -> Parity:
    """Return the largest difference between an engine and its learner on fixed prompts, continued by fixed seeds.

    The prompts are the same every time, so that a cache entry of older weights is hit, and noticed.

    Args:
        engine: Engine that samples a few tokens.
        model: The learner's causal language model.
        temperature: Temperature of the engine, above 0.
        autocast: Lower precision that the learner computes in.
    """
    continuations = continue_prompts(engine, model.config)
    return compare(continuations, model, temperature=temperature, autocast=autocast)


def continue_prompts(engine: Engine, config: Any) -> list[Completion]:
    """Return an engine's continuations of the fixed prompts, given the configuration of its model."""
    prompts = fixed_prompts(config.vocab_size, config.max_position_embeddings - TOKENS)
    return [row[0] for row in engine.generate(prompts, seeds=[[SEED]] * len(prompts), max_tokens=TOKENS)]


def compare(
    continuations: Sequence[Completion], model: Any, *, temperature: float, autocast: torch.dtype | None = None
) -> Parity:
    """Return the largest difference between a learner and the engine that continued the fixed prompts; see `probe`."""
    # The import takes seconds, which a worker, with an engine and no learner, can spare.
    from tsr_gym.agents.models.logprobs import token_logprobs

    prompts = fixed_prompts(model.config.vocab_size, model.config.max_position_embeddings - TOKENS)
    device = next(model.parameters()).device
    rows = [(*prompt, *answer.token_ids) for prompt, answer in zip(prompts, continuations, strict=True)]
    shape = len(rows), max(map(len, rows))
    ids = torch.zeros(shape, dtype=torch.int64)
    present, sampled = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    for number, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        ids[number, : len(row)] = torch.tensor(row)
        present[number, : len(row)], sampled[number, len(prompt) : len(row)] = True, True
    ids, present, sampled = (tensor.to(device) for tensor in (ids, present, sampled))
    with torch.no_grad(), torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
        logprobs, _ = token_logprobs(model, ids, present, sampled, temperature=temperature)
    of_learner = logprobs[sampled].tolist()
    of_engine = [logprob for completion in continuations for logprob in completion.logprobs]
    return largest(map(Parity, of_engine, of_learner))


def largest(pairs: Iterable[Parity]) -> Parity:
    """Return the pair with the largest difference; NaN counts as larger than any number."""
    return max(pairs, key=lambda pair: (pair.difference != pair.difference, pair.difference))


def fixed_prompts(vocabulary: int, longest: int) -> list[tuple[int, ...]]:
    """Return prompts of at most `longest` tokens, with ids that are spread over the vocabulary."""
    lengths = [min(length, longest) for length in LENGTHS]
    return [tuple((7919 * (place + length) + 13) % vocabulary for place in range(length)) for length in lengths]


def check_parity(engine: Engine, learner: "Learner", tolerance: float | None, *, temperature: float) -> int:
    """Return how many tokens the engine of each process sampled for this check; all processes have to call this.

    These tokens are no part of a method: they belong to the engine, and no budget of a run counts them.

    Args:
        engine: Engine of this process.
        learner: Learner with the policy that the engine should sample from.
        tolerance: Maximum difference in nats; None for what rounding explains, 0 to skip the check.
        temperature: Temperature of the engine; at 0 it has no log-probabilities to compare, and the check is skipped.

    Raises:
        EngineFailed: The difference is larger, in this process or in another one.
    """
    if tolerance == 0 or temperature == 0:
        return 0

    def ask() -> tuple[Parity, int]:
        answers = continue_prompts(engine, learner.model.config)
        parity = compare(answers, learner.model, temperature=temperature, autocast=learner.autocast)
        return parity, sum(len(answer.token_ids) for answer in answers)

    with learner.sampling():
        # All processes raise if one of them has to, so that none waits for the others for ever.
        checks = learner.processes.each(ask)
    for parity, _ in checks:
        if error := parity_error(parity, learner, tolerance):
            raise EngineFailed(error)
    # The same in every process, so that the logs do not depend on their number.
    return checks[0][1]


def parity_error(parity: Parity, learner: "Learner", tolerance: float | None) -> str | None:
    """Return why an engine's samples may not be learned from, None if they may be; see `check_parity`."""
    return _error_above(parity, ROUNDING[learner.autocast or torch.float32] if tolerance is None else tolerance)


def _error_above(parity: Parity, most: float) -> str | None:
    if parity.difference <= most:
        return None
    return (
        f"after an update of its weights the engine gives a token the log-probability {parity.engine:.6g} and the "
        f"learner {parity.learner:.6g}: wanted a difference of at most {most:g} (parity_tolerance). It samples "
        "from other weights, or has cached keys and values of older ones"
    )


def hand_over(player: "ModelPlayer") -> None:
    """Give a player's host the weights of its model, and check that it samples from them.

    Raises:
        EngineFailed: It samples from other weights.
    """
    from tsr_gym.agents.models.language_model import pick_autocast

    if player.host is None:
        return
    model = player.policy.model
    engine = player.engine(temperature=1.0)
    engine.load_weights(model.state_dict().items(), version=0)
    autocast = pick_autocast(player.model.dtype, next(model.parameters()).device)
    parity = probe(engine, model, temperature=1.0, autocast=autocast)
    if error := _error_above(parity, ROUNDING[autocast or torch.float32]):
        raise EngineFailed(error)


def check_versions(groups: Iterable[Group], version: int) -> None:
    """Check that all trajectories were sampled from weights of one version.

    Raises:
        EngineFailed: A trajectory was sampled from another version.
    """
    for group in groups:
        for trajectory in group.trajectories:
            if others := sorted(trajectory.weight_versions - {version}):
                raise EngineFailed(
                    f"a trajectory of instance {group.task} was sampled by weights of version {others[0]}, wanted is "
                    f"version {version}: the engine missed an update"
                )
