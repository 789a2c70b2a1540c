"""Prompt signs: how much a policy's answers depend on their prompts, by the policy's own log-probabilities."""

from collections.abc import Sequence

from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.models.logprobs import cross_logprobs
from tsr_gym.agents.runs.health import first_answers, prompt_information


def prompt_signs(learner: Learner, groups: Sequence[Group]) -> dict[str, float]:
    """Return ``prompt_recall`` and ``prompt_information`` of first answers; nothing where all prompts are one.

    Args:
        learner: Whose policy is asked, by a forward pass for every pair of a prompt and an answer.
        groups: Of one update.

    Raises:
        TrainingDiverged: A log-probability is not finite.
    """
    prompts, answers = first_answers(groups)
    if len(prompts) < 2:
        return {}
    microbatch = learner.config.microbatch
    table = cross_logprobs(learner.model, prompts, answers, temperature=learner.temperature, microbatch=microbatch)
    found = prompt_information(table, range(len(prompts)))
    return {"prompt_recall": found.recall, "prompt_information": found.nats}
