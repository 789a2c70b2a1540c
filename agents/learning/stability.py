"""Stability: gradients that spike, and signs that a policy learns less and less; torch-free but for one function.

What each number means, and what to do about it, stands in docs/stability.md. Nothing here changes training by itself:
a rule returns a decision, and its memory is a plain value that belongs into a checkpoint.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log
from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING, Any, NamedTuple

from tsr_gym.agents.episodes.trajectory import Group, Turn
from tsr_gym.agents.lessons.filters import has_equal_returns
from tsr_gym.errors import ConfigError, TrainingDiverged
from tsr_gym.tree import Tree

if TYPE_CHECKING:
    from torch import Tensor


def require_finite(values: Mapping[str, float], *, where: str, advice: str = "") -> None:
    """Raise where a number is NaN or infinite, and name it.

    Args:
        values: Numbers by name.
        where: Where they were found, such as ``"update 12"``.
        advice: What to do about it.

    Raises:
        TrainingDiverged: Some are not finite.
    """
    bad = [f"{name} = {value}" for name, value in values.items() if not isfinite(value)]
    if bad:
        raise TrainingDiverged(f"{where}: {', '.join(bad)}" + (f": {advice}" if advice else ""))


@dataclass(frozen=True, slots=True)
class GradientMemory:
    """What a spike rule remembers; part of a checkpoint.

    Attributes:
        norms: Gradient norms of the last steps that counted, oldest first.
        skipped: How many steps in a row were skipped.
    """

    norms: tuple[float, ...] = ()
    skipped: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the memory as JSON's own types."""
        return {"norms": list(self.norms), "skipped": self.skipped}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "GradientMemory":
        """Return the memory that `to_json` wrote."""
        return cls(tuple(data["norms"]), data["skipped"])


class Judgement(NamedTuple):
    """What a spike rule says of a step.

    Attributes:
        is_spike: Whether the norm is above the limit.
        skip: Whether the step should not be taken.
        limit: The largest norm that is none; infinite until there is something to compare with.
        memory: What to remember.
    """

    is_spike: bool
    skip: bool
    limit: float
    memory: GradientMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikeRule:
    """Tell a gradient norm that spikes: far above the median of the last ones, in units of their own scatter.

    The limit is ``median + factor * max(1.4826 * MAD, floor * median)``, with MAD the median absolute deviation; 1.4826
    makes it a standard deviation where norms are normal, and the floor keeps norms that hardly vary from calling every
    change a spike. Median and MAD do not move for a few spikes.
    """

    window: int = 64
    """Steps that are remembered."""
    warm_up: int = 16
    """Steps before anything is called a spike."""
    factor: float = 8.0
    """How many robust standard deviations above the median."""
    floor: float = 0.1
    """Smallest standard deviation, as a share of the median."""
    skip: bool = False
    """Whether a step that spikes is to be skipped."""
    max_skips: int = 3
    """Steps skipped in a row at most: larger gradients that stay are no spike."""

    def __post_init__(self) -> None:
        if min(self.window, self.warm_up, self.max_skips) < 1 or not self.factor > 0 or not self.floor >= 0:
            raise ConfigError(
                "wanted window, warm_up and max_skips >= 1, factor > 0 and floor >= 0, got "
                f"{self.window}, {self.warm_up}, {self.max_skips}, {self.factor} and {self.floor}"
            )

    def judge(self, memory: GradientMemory, norm: float) -> Judgement:
        """Return what to do about a step, and what to remember of it.

        A norm that is skipped is not remembered; one that counts is, spike or not. After as many skips in a row as
        there may be, the old norms are forgotten, and nothing is a spike until the rule has warmed up to the new ones.

        Args:
            memory: Of the steps before.
            norm: Gradient norm of this step, before clipping.

        Raises:
            TrainingDiverged: The norm is not finite.
        """
        require_finite({"gradient norm": norm}, where="spike rule", advice="the step must not be taken")
        limit = self.limit(memory)
        is_spike = norm > limit
        skip = self.skip and is_spike and memory.skipped < self.max_skips
        if skip:
            return Judgement(True, True, limit, GradientMemory(memory.norms, memory.skipped + 1))
        before = () if self.skip and is_spike else memory.norms
        return Judgement(is_spike, False, limit, GradientMemory((*before, norm)[-self.window :]))

    def limit(self, memory: GradientMemory) -> float:
        """Return the largest norm that is no spike."""
        if len(memory.norms) < max(1, min(self.warm_up, self.window)):
            return float("inf")
        middle = median(memory.norms)
        if middle == 0:
            return float("inf")
        scatter = median(abs(norm - middle) for norm in memory.norms)
        return middle + self.factor * max(1.4826 * scatter, self.floor * middle)


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
