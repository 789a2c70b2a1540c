"""check_engine: proof by use that an engine answers as the learner would, and says so where it does not."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tsr_gym.errors import ConfigError
from tsr_gym.testing.engine_rules import (
    an_abort_is_told,
    answers_end_at_their_limit,
    company_does_not_matter,
    every_prompt_gets_its_number,
    logprobs_are_the_learners,
    new_weights_answer,
    prompts_are_taken_token_by_token,
    prompts_that_continue_are_computed_right,
    samples_are_drawn_as_often_as_said,
    seeds_decide,
    stop_tokens_end_answers,
    the_contract_is_offered,
    versions_are_told,
    what_is_missing_raises,
)
from tsr_gym.testing.engine_trial import EngineTrial, Reference, Update

PROMPTS = ((11, 12, 13, 14, 15), (11, 12, 13, 14, 15, 16, 17, 18), (9,), (20, 21))
HELD = "held"

# In this order, because an early rule names a culprit that would also break the later ones.
RULES: dict[str, Callable[[EngineTrial], str]] = {
    "contract": the_contract_is_offered,
    "counts": every_prompt_gets_its_number,
    "logprobs": logprobs_are_the_learners,
    "prompt tokens": prompts_are_taken_token_by_token,
    "continued prompts": prompts_that_continue_are_computed_right,
    "seeds": seeds_decide,
    "company": company_does_not_matter,
    "sampling": samples_are_drawn_as_often_as_said,
    "length": answers_end_at_their_limit,
    "stop tokens": stop_tokens_end_answers,
    "abort": an_abort_is_told,
    "weight version": versions_are_told,
    "weight update": new_weights_answer,
    "unsupported": what_is_missing_raises,
}


def check_engine(
    engine: Any,
    *,
    reference: Reference | None = None,
    update: Update | None = None,
    prompts: Sequence[Sequence[int]] = PROMPTS,
    stop_ids: Collection[int] = (),
    tolerance: float = 1e-5,
) -> dict[str, str]:
    """Prove by use that an engine keeps `tsr_gym.agents.policies.engine.Engine`, and return what was looked at.

    Counts of samples, seeds, the prompts' exact tokens, log-probabilities of the very distribution that is sampled
    from, limits, stop tokens, aborts, versions of the weights, an update of the weights, and that what the engine
    cannot do raises `tsr_gym.Unsupported`. The engine is used; afterwards it has the weights that `update` gave it.

    Args:
        engine: Any object with the methods of the contract, sampling at a temperature above 0.
        reference: From a prompt and an answer to the learner's log-probability of each token of the answer, as it is
            sampled: ``log_softmax(logits / temperature)``. Wanted of every engine that has log-probabilities.
        update: Changes the learner, so that `reference` answers by the new weights, and returns their names and
            tensors for ``load_weights``; nothing where the learner's model is the engine's own.
        prompts: Token ids to ask with, several and of different lengths; they leave room in the model's context.
        stop_ids: Tokens that end an answer.
        tolerance: Most difference of a log-probability, in nats.

    Returns:
        By rule, ``"held"`` or why it was not asked.

    Raises:
        CheckFailed: A rule is broken; `check` names it.
        ConfigError: The engine has log-probabilities, and no reference is given.
    """
    asked = tuple(tuple(prompt) for prompt in prompts)
    if len(asked) < 2 or not all(asked):
        raise ConfigError(f"wanted at least two prompts, none empty, got {asked}")
    trial = EngineTrial(engine, asked, reference, update, frozenset(stop_ids), tolerance)
    found = {}
    for name, rule in RULES.items():
        found[name] = rule(trial) or HELD
        if name == "contract" and engine.capabilities.logprobs and reference is None:
            raise ConfigError("the engine has log-probabilities: wanted a reference to hold them against, got None")
    return found
