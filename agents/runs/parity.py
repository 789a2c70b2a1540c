"""Parity: proof, after every update of an engine's weights, that it samples from the policy that the learner trains.

A head that stayed behind or keys and values of older weights raise no error; they only make every ratio wrong.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.policies.engine import Completion, Engine
from tsr_gym.errors import EngineFailed

if TYPE_CHECKING:
    from tsr_gym.agents.episodes.model_player import ModelPlayer
    from tsr_gym.agents.learning.learner import Learner

# Tokens that the engine samples after each prompt, and the lengths of the prompts, one of them longer than the blocks
# of 16 or 32 tokens in which vLLM remembers keys and values.
TOKENS = 4
LENGTHS = (5, 16, 72)
SEED = 20
# Differences in nats that rounding explains: measured are 2e-6 in float32 and 4e-3 in bfloat16.
ROUNDING = {torch.float32: 1e-3, torch.bfloat16: 0.25}


class Parity(NamedTuple):
    """The largest difference between an engine and its learner.

    Attributes:
        engine: The engine's log-probability of the token where they differ most.
        learner: The learner's.
    """

    engine: float
    learner: float

    @property
    def difference(self) -> float:
        """How far apart they are, in nats."""
        return abs(self.engine - self.learner)


def probe(engine: Engine, model: Any, *, temperature: float, autocast: torch.dtype | None = None) -> Parity:
    """Return how far an engine is from its learner on fixed prompts, which it continues by fixed seeds.

    The prompts are the same every time, so that whatever an engine still remembers of them from older weights shows.

    Args:
        engine: Samples a few tokens.
        model: The learner's, a causal language model.
        temperature: Of the engine's sampling, above 0.
        autocast: Lower precision that the learner computes in.
    """
    said = continued(engine, model.config)
    return compared(said, model, temperature=temperature, autocast=autocast)


def continued(engine: Engine, config: Any) -> list[Completion]:
    """Return how an engine continues the fixed prompts for a model of a configuration."""
    prompts = fixed_prompts(config.vocab_size, config.max_position_embeddings - TOKENS)
    return [row[0] for row in engine.generate(prompts, seeds=[[SEED]] * len(prompts), max_tokens=TOKENS)]


def compared(
    said: Sequence[Completion], model: Any, *, temperature: float, autocast: torch.dtype | None = None
) -> Parity:
    """Return how far an engine is from its learner, by what it continued the fixed prompts with; see `probe`."""
    # Imported here, because it takes seconds that a worker, which has an engine and no learner, need not wait.
    from tsr_gym.agents.models.logprobs import token_logprobs

    prompts = fixed_prompts(model.config.vocab_size, model.config.max_position_embeddings - TOKENS)
    device = next(model.parameters()).device
    width = max(len(prompt) + len(one.token_ids) for prompt, one in zip(prompts, said, strict=True))
    ids, present, sampled = (torch.zeros(len(prompts), width, dtype=kind) for kind in (torch.int64, *[torch.bool] * 2))
    for row, (prompt, one) in enumerate(zip(prompts, said, strict=True)):
        end = len(prompt) + len(one.token_ids)
        ids[row, :end] = torch.tensor((*prompt, *one.token_ids))
        present[row, :end], sampled[row, len(prompt) : end] = True, True
    asked = [part.to(device) for part in (ids, present, sampled)]
    with torch.no_grad(), torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
        found, _ = token_logprobs(model, *asked, temperature=temperature)
    learners = found[asked[2]].tolist()
    engines = [logprob for one in said for logprob in one.logprobs]
    return largest(map(Parity, engines, learners))


def largest(pairs: Iterable[Parity]) -> Parity:
    """Return the pair that differs most; anything but a number does."""
    return max(pairs, key=lambda pair: (pair.difference != pair.difference, pair.difference))


def fixed_prompts(vocabulary: int, longest: int) -> list[tuple[int, ...]]:
    """Return prompts of at most so many tokens, which are spread over a vocabulary."""
    lengths = [min(length, longest) for length in LENGTHS]
    return [tuple((7919 * (place + length) + 13) % vocabulary for place in range(length)) for length in lengths]


def check_parity(engine: Engine, learner: "Learner", tolerance: float | None, *, temperature: float) -> None:
    """Stop where an engine is too far from its learner; processes that learn together have to ask together.

    Args:
        engine: Of this process.
        learner: Whose policy it is to sample from.
        tolerance: Most difference in nats; None for what rounding explains, 0 to look at nothing.
        temperature: Of the engine's sampling; at 0 there is nothing to compare.

    Raises:
        EngineFailed: It is, in this process or in another one.
    """
    if tolerance == 0 or temperature == 0:
        return
    ask = partial(probe, engine, learner.model, temperature=temperature, autocast=learner.autocast)
    with learner.sampling():
        everyones = learner.processes.each(ask)
    for found in everyones:
        if why := why_apart(found, learner, tolerance):
            raise EngineFailed(why)


def why_apart(found: Parity, learner: "Learner", tolerance: float | None) -> str | None:
    """Return why an engine's samples may not be learned from, None where they may; see `check_parity`."""
    return _why_beyond(found, ROUNDING[learner.autocast or torch.float32] if tolerance is None else tolerance)


def _why_beyond(found: Parity, most: float) -> str | None:
    if found.difference <= most:
        return None
    return (
        f"after an update of its weights the engine gives a token the log-probability {found.engine:.6g} and the "
        f"learner {found.learner:.6g}: wanted a difference of at most {most:g} (parity_tolerance). It samples by other "
        "weights, or by keys and values of older ones"
    )


def hand_over(player: "ModelPlayer") -> None:
    """Give a player's host the weights of its model, and stop where it then samples by others.

    Raises:
        EngineFailed: It does.
    """
    from tsr_gym.agents.models.language_model import pick_autocast

    if player.host is None:
        return
    model = player.policy.model
    engine = player.chat("", temperature=1.0).engine
    engine.load_weights(model.state_dict().items(), version=0)
    autocast = pick_autocast(player.model.dtype, next(model.parameters()).device)
    found = probe(engine, model, temperature=1.0, autocast=autocast)
    if why := _why_beyond(found, ROUNDING[autocast or torch.float32]):
        raise EngineFailed(why)


def check_versions(groups: Iterable[Group], version: int) -> None:
    """Stop where a trajectory was sampled by other weights than those that are trained.

    Raises:
        EngineFailed: One was.
    """
    for group in groups:
        for trajectory in group.trajectories:
            if others := sorted(trajectory.weight_versions - {version}):
                raise EngineFailed(
                    f"a trajectory of instance {group.task} was sampled by weights of version {others[0]}, wanted is "
                    f"version {version}: the engine missed an update"
                )
