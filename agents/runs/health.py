"""Health: metrics that show collapse or waste, computed from the samples of an update; torch is imported when used.

docs/stability.md explains each number, and what to do about it. Nothing here changes training.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from math import log
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, NamedTuple

from tsr_gym.agents.episodes.trajectory import Group, Turn
from tsr_gym.agents.learning.spikes import require_finite
from tsr_gym.agents.lessons.filters import has_equal_returns
from tsr_gym.tree import Tree

if TYPE_CHECKING:
    from torch import Tensor

    from tsr_gym.agents.learning.learner import Learner


def group_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Return metrics of sampled groups: spread, outcomes, and whether answers depend on their prompts.

    Args:
        groups: Groups of one update, before any filter.

    Returns:
        ``group_spread`` mean standard deviation of the returns within a group; ``equal_groups``, ``solved_groups``,
        ``failed_groups`` and ``mixed_groups`` shares of groups; and `answer_agreement` of first turns. Empty without
        groups.

    Raises:
        TrainingDiverged: A return is not finite.
    """
    groups = [group for group in groups if group.trajectories]
    if not groups:
        return {}
    equal = [has_equal_returns(group) for group in groups]
    outcomes = [{trajectory.success for trajectory in group.trajectories} for group in groups]
    return {
        "group_spread": fmean(pstdev(trajectory.total_reward for trajectory in group.trajectories) for group in groups),
        "equal_groups": fmean(equal),
        "solved_groups": fmean(outcome == {True} for outcome in outcomes),
        "failed_groups": fmean(outcome == {False} for outcome in outcomes),
        "mixed_groups": fmean(len(outcome) == 2 for outcome in outcomes),
        **answer_agreement((turn.prompt_ids, turn.token_ids) for turn in _first_turns(groups)),
    }


def first_answers(groups: Sequence[Group], most: int = 16) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return different first prompts and an answer to each, for `cross_logprobs`.

    Args:
        groups: Groups of one update.
        most: Maximum number of prompts; the work grows with its square.
    """
    answers: dict[tuple[int, ...], tuple[int, ...]] = {}
    for turn in _first_turns(groups):
        answers.setdefault(turn.prompt_ids, turn.token_ids)
    prompts = list(answers)[:most]
    return prompts, [answers[prompt] for prompt in prompts]


def answer_agreement(answers: Iterable[tuple[Hashable, Hashable]]) -> dict[str, float]:
    """Return how often two answers are identical, to the same prompt and to different prompts.

    Both are unbiased estimates over pairs of samples. If answers do not depend on their prompts, the two are equal:
    this is template collapse. If hardly any answer repeats, as with long reasoning, both are 0 and show nothing; use
    `prompt_information` then.

    Args:
        answers: Pairs of prompt and answer.

    Returns:
        ``same_prompt_agreement`` and ``other_prompt_agreement``, each only if there are such pairs.
    """
    pairs = list(answers)
    identical = _pairs(Counter(pairs))
    of_prompt, of_answer = (_pairs(Counter(both[place] for both in pairs)) for place in (0, 1))
    # Pairs of the same answer are either to the same prompt, counted in `identical`, or to different prompts.
    others = len(pairs) * (len(pairs) - 1) // 2 - of_prompt
    agreement = {}
    if of_prompt:
        agreement["same_prompt_agreement"] = identical / of_prompt
    if others:
        agreement["other_prompt_agreement"] = (of_answer - identical) / others
    return agreement


def tree_metrics(trees: Iterable[Tree]) -> dict[str, float]:
    """Return how much of a search is repetition.

    Args:
        trees: Grown trees.

    Returns:
        ``duplicate_candidates`` share of candidates with the text of an earlier candidate of the same node;
        ``unique_states`` distinct states per node with a state key, first nodes left out. Each only if there is
        something to count.
    """
    candidates = duplicates = states = distinct = 0
    for tree in trees:
        for index in range(len(tree.nodes)):
            texts = [tree.nodes[child].candidate.text for child in tree.children(index)]
            # In environments without text the candidate's text is an action, such as an array, which no set can hold.
            candidates += len(texts)
            duplicates += len(texts) - len({repr(text) for text in texts})
        keys = [node.state_key for node in tree.nodes[1:] if node.state_key is not None]
        states += len(keys)
        distinct += len(set(keys))
    metrics = {}
    if candidates:
        metrics["duplicate_candidates"] = duplicates / candidates
    if states:
        metrics["unique_states"] = distinct / states
    return metrics


class PromptInformation(NamedTuple):
    """How much answers depend on their prompts.

    Attributes:
        nats: Estimate of the mutual information of prompt and answer; at most `bound`.
        bound: ``log P`` for P prompts.
        retrieval: Share of answers that are more likely after their own prompt than after any other.
        chance: `retrieval` of answers that do not depend on prompts, ``1 / P``.
    """

    nats: float
    bound: float
    retrieval: float
    chance: float

    @property
    def recall(self) -> float:
        """Retrieval above chance, 1 for perfect and 0 for none; ``prompt_recall`` of a run's records."""
        return (self.retrieval - self.chance) / (1 - self.chance)


def prompt_information(logprobs: "Tensor", own: Sequence[int]) -> PromptInformation:
    """Return the mutual information of prompt and answer, from the likelihood of each answer after every prompt.

    ``mean of log pi(z | x) - log mean_j pi(z | x_j)`` over answers z to prompts x (RAGEN-2, arXiv 2604.06268), with
    uniform weights of prompts. A policy whose answers do not depend on the prompt has 0 nats and retrieves by chance,
    however large its entropy. An answer that is equally likely after k prompts counts as 1 / k of a retrieval.

    Args:
        logprobs: `[R, P]` log-probabilities of R answers after P different prompts, from `cross_logprobs`.
        own: Column of each answer's own prompt.

    Raises:
        ValueError: There are fewer than two prompts, or no answers.
        TrainingDiverged: A log-probability is NaN, or an answer is impossible after its own prompt.
    """
    answers, prompts = logprobs.shape
    if prompts < 2 or answers < 1 or len(own) != answers:
        raise ValueError(
            f"wanted at least 2 prompts and a prompt for each answer, got {prompts} prompts, {answers} answers and "
            f"{len(own)} of their prompts"
        )
    table = logprobs.double()
    # With uniform prompts the marginal of an answer is the mean of its probabilities after all prompts.
    matched = table[range(answers), list(own)]
    mixed = table.logsumexp(dim=1) - log(prompts)
    nats = float((matched - mixed).mean())
    require_finite({"mutual information": nats}, where="prompt_information", advice="look at the log-probabilities")
    best = table == table.max(dim=1, keepdim=True).values
    hits = best[range(answers), list(own)].double() / best.sum(dim=1)
    return PromptInformation(nats, log(prompts), float(hits.mean()), 1 / prompts)


def prompt_metrics(learner: "Learner", groups: Sequence[Group]) -> dict[str, float]:
    """Return ``prompt_recall`` and ``prompt_information`` of first answers; empty if all prompts are the same.

    Args:
        learner: Learner whose policy computes likelihoods, in a forward pass for every pair of prompt and answer.
        groups: Groups of one update.

    Raises:
        TrainingDiverged: A log-probability is not finite.
    """
    from tsr_gym.agents.models.logprobs import cross_logprobs

    prompts, answers = first_answers(groups)
    if len(prompts) < 2:
        return {}
    longest = max(map(len, prompts)) + max(map(len, answers))
    rows = learner.config.rows_per_pass(longest)
    table = cross_logprobs(learner.model, prompts, answers, temperature=learner.temperature, microbatch=rows)
    information = prompt_information(table, range(len(prompts)))
    return {"prompt_recall": information.recall, "prompt_information": information.nats}


def _first_turns(groups: Iterable[Group]) -> list[Turn]:
    first = [trajectory.turns[0] for group in groups for trajectory in group.trajectories if trajectory.turns]
    return [turn for turn in first if turn.token_ids]


def _pairs(counts: Counter[Any]) -> int:
    """Return the number of pairs of equal elements, given how often each element occurs."""
    return sum(count * (count - 1) // 2 for count in counts.values())
