"""Health: signs that a policy learns less and less, read off what it sampled; torch-free but for one function.

What each number means, and what to do about it, stands in docs/stability.md. Nothing here changes training.
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


def group_signs(groups: Sequence[Group]) -> dict[str, float]:
    """Return signs of health in what was sampled: spread, outcomes, and whether answers depend on their prompts.

    Args:
        groups: Of one update, before any filter.

    Returns:
        ``group_spread`` mean standard deviation of the returns within a group; ``equal_groups``, ``solved_groups``,
        ``failed_groups`` and ``mixed_groups`` shares of groups; and what `answer_agreement` says of first turns.
        Without groups, nothing.

    Raises:
        TrainingDiverged: A return is not finite.
    """
    groups = [group for group in groups if group.trajectories]
    if not groups:
        return {}
    equal = [has_equal_returns(group) for group in groups]
    outcomes = [{trajectory.success for trajectory in group.trajectories} for group in groups]
    return {
        "group_spread": fmean(pstdev(one.total_reward for one in group.trajectories) for group in groups),
        "equal_groups": fmean(equal),
        "solved_groups": fmean(outcome == {True} for outcome in outcomes),
        "failed_groups": fmean(outcome == {False} for outcome in outcomes),
        "mixed_groups": fmean(len(outcome) == 2 for outcome in outcomes),
        **answer_agreement((turn.prompt_ids, turn.token_ids) for turn in _first_turns(groups)),
    }


def first_answers(groups: Sequence[Group], most: int = 16) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return different first prompts and an answer to each, for `cross_logprobs`.

    Args:
        groups: Of one update.
        most: How many prompts at most; the work grows with its square.
    """
    said: dict[tuple[int, ...], tuple[int, ...]] = {}
    for turn in _first_turns(groups):
        said.setdefault(turn.prompt_ids, turn.token_ids)
    prompts = list(said)[:most]
    return prompts, [said[prompt] for prompt in prompts]


def answer_agreement(answers: Iterable[tuple[Hashable, Hashable]]) -> dict[str, float]:
    """Return how often two answers are word for word the same, to the same prompt and to different prompts.

    Both are unbiased estimates over pairs of samples. Where answers say nothing of their prompts the two are equal:
    that is template collapse. Where hardly any answer repeats, as with long reasoning, both are 0 and say nothing;
    `prompt_information` is then the measure.

    Args:
        answers: Pairs of prompt and answer.

    Returns:
        ``same_prompt_agreement`` and ``other_prompt_agreement``, each where there are such pairs.
    """
    pairs = list(answers)
    alike = _pairs(Counter(pairs))
    of_prompt, of_answer = (_pairs(Counter(both[place] for both in pairs)) for place in (0, 1))
    others = len(pairs) * (len(pairs) - 1) // 2 - of_prompt
    found = {}
    if of_prompt:
        found["same_prompt_agreement"] = alike / of_prompt
    if others:
        found["other_prompt_agreement"] = (of_answer - alike) / others
    return found


def tree_signs(trees: Iterable[Tree]) -> dict[str, float]:
    """Return how much of a search is repetition.

    Args:
        trees: Grown trees.

    Returns:
        ``duplicate_candidates`` share of candidates that say what an earlier one of the same node said;
        ``unique_states`` distinct states per node whose state is known, first nodes left out. Each where there is
        something to count.
    """
    candidates = duplicates = states = distinct = 0
    for tree in trees:
        for index in range(len(tree.nodes)):
            said = [tree.nodes[child].candidate.text for child in tree.children(index)]
            candidates += len(said)
            duplicates += len(said) - len({repr(text) for text in said})
        keys = [node.state_key for node in tree.nodes[1:] if node.state_key is not None]
        states += len(keys)
        distinct += len(set(keys))
    found = {}
    if candidates:
        found["duplicate_candidates"] = duplicates / candidates
    if states:
        found["unique_states"] = distinct / states
    return found


class PromptInformation(NamedTuple):
    """How much answers say about the prompts that they answer.

    Attributes:
        nats: Interval of the mutual information of prompt and answer; at most `bound`.
        bound: ``log P`` for P prompts.
        retrieval: Share of answers that are likelier after their own prompt than after any other.
        chance: What `retrieval` is where answers do not depend on prompts, ``1 / P``.
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
    """Return the mutual information of prompt and answer, from how likely each answer is after every prompt.

    ``mean of log pi(z | x) - log mean_j pi(z | x_j)`` over answers z to prompts x (RAGEN-2, arXiv 2604.06268), with
    prompts drawn evenly. A policy that answers everything alike has 0 nats and retrieves by chance, however large its
    entropy. Ties in likelihood are retrieved by lot.

    Args:
        logprobs: `[R, P]`, of R answers after P different prompts, such as `cross_logprobs` returns.
        own: The column of each answer's own prompt.

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
    matched = table[range(answers), list(own)]
    mixed = table.logsumexp(dim=1) - log(prompts)
    nats = float((matched - mixed).mean())
    require_finite({"mutual information": nats}, where="prompt_information", advice="look at the log-probabilities")
    best = table == table.max(dim=1, keepdim=True).values
    hits = best[range(answers), list(own)].double() / best.sum(dim=1)
    return PromptInformation(nats, log(prompts), float(hits.mean()), 1 / prompts)


def _first_turns(groups: Iterable[Group]) -> list[Turn]:
    first = [one.turns[0] for group in groups for one in group.trajectories if one.turns]
    return [turn for turn in first if turn.token_ids]


def _pairs(counts: Counter[Any]) -> int:
    """Return how many pairs can be made within equals."""
    return sum(count * (count - 1) // 2 for count in counts.values())
