"""Credit rules: functions Group -> Group that rewrite the rewards of turns before batching; torch-free.

Every rule returns a new group and changes only rewards, except `undo_selection`, which changes only the weights of
trajectories.
"""

import re
import string
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import comb
from typing import Literal

from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.lessons.filters import are_equal
from tsr_gym.ranges import check_counts, check_range

CreditRule = Callable[[Group], Group]
GoldenAnswers = Sequence[str] | Callable[[Group], Sequence[str]]

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
# Answers that occur in any text by chance.
_ANYWHERE = frozenset({"yes", "no"})


def first_occurrence(
    group: Group,
    golds: GoldenAnswers = (),
    *,
    alpha: float = 0.5,
    groups: Literal["all_wrong", "all"] = "all_wrong",
    match: Literal["boundary", "substring"] = "boundary",
    evidence: Callable[[Turn], bool] | Literal["score"] | None = None,
) -> Group:
    """Reward the turns of a failed search up to the first that found the answer (FOLR of TSPO, arXiv 2601.22776).

    ``r_k = 1`` for every turn of a trajectory that solved the task. Otherwise ``r_k = alpha`` for ``k <= t*`` and 0
    after it, where t* is the first turn after which the environment showed a golden answer; 0 for every turn if it
    never did. `tspo` compares the turns of these groups; the sum of these rewards is not a return.

    The published alpha and matching of text are unknown. In a group that only failed, alpha has no effect on advantages
    that are divided by the standard deviation.

    Args:
        group: Trajectories of one task; the `observation` of a turn is its search result.
        golds: Golden answers, or a function from a group to them; if empty, those that the environment gave with each
            turn.
        alpha: Reward for evidence, ``0 < alpha <= 1``.
        groups: Groups to rewrite: those in which every trajectory failed, as in the paper, or all. The others are
            returned unchanged. `tspo` has the same choice with the same default, and both must agree.
        match: ``"boundary"``: the words of the answer are consecutive whole words of the observation, both in lower
            case without punctuation and articles; answers that prove nothing are skipped: yes, no, and those of at most
            one character. ``"substring"``: any answer anywhere in the text (Search-R1).
        evidence: Predicate of turns that found it, instead of `golds` and `match`: for observations that are not text,
            and for evidence by id; ``"score"`` for ``turn.score > 0``, for scorers that know the evidence, such as
            `RetrievalQAScore`.

    Raises:
        ValueError: Alpha is out of range, there are no golden answers, or observations are not text.
    """
    check_range(above=0, most=1, alpha=alpha)
    if groups == "all_wrong" and any(trajectory.success for trajectory in group.trajectories):
        return group
    if evidence == "score":
        return _with_evidence(group, lambda turn: turn.score > 0, alpha)
    if evidence is None:
        answers = tuple(golds(group) if callable(golds) else golds)

        def evidence(turn: Turn) -> bool:
            return shows_answer(turn, answers or _golden_answers(turn), match=match)

    return _with_evidence(group, evidence, alpha)


def _golden_answers(turn: Turn) -> tuple[str, ...]:
    if not turn.golden_answers:
        raise ValueError(
            "the environment gives no golden answers: pass them as golds, or a test of evidence, as in "
            "first_occurrence(evidence='score')"
        )
    return turn.golden_answers


def _with_evidence(group: Group, evidence: Callable[[Turn], bool], alpha: float) -> Group:
    return Group(group.task, tuple(_up_to_evidence(trajectory, evidence, alpha) for trajectory in group.trajectories))


def _up_to_evidence(trajectory: Trajectory, evidence: Callable[[Turn], bool], alpha: float) -> Trajectory:
    if trajectory.success:
        return _rewarded(trajectory, [1.0] * len(trajectory.turns))
    first = next((number for number, turn in enumerate(trajectory.turns) if evidence(turn)), -1)
    return _rewarded(trajectory, [alpha if number <= first else 0.0 for number in range(len(trajectory.turns))])


def shows_answer(turn: Turn, golds: tuple[str, ...], *, match: Literal["boundary", "substring"] = "boundary") -> bool:
    """Return whether a turn's observation contains a golden answer, see `first_occurrence`.

    Raises:
        ValueError: The observation is not text.
    """
    if not isinstance(turn.observation, str):
        raise ValueError(
            f"wanted an observation of text, got {type(turn.observation).__name__}: pass a predicate as evidence="
        )
    text = normalise(turn.observation)
    answers = [normalise(gold) for gold in golds]
    if match == "substring":
        return any(answer in text for answer in answers)
    # Blanks around both make a match of whole words.
    padded = f" {text} "
    return any(f" {answer} " in padded for answer in answers if len(answer) > 1 and answer not in _ANYWHERE)


# A search shows the same passages many times, and every turn is compared with the same answers.
@lru_cache(maxsize=4096)
def normalise(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation and articles, with single spaces (SQuAD).

    >>> normalise("The  Beatles' 'White Album'!")
    'beatles white album'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def potential_differences(
    group: Group,
    *,
    weight: float = 1.0,
    gamma: float = 1.0,
    start: float | Callable[[Group], float] = 0.0,
    potential: Callable[[Turn], float] | None = None,
    at_end: Literal["zero", "score"] = "zero",
    rewards: Literal["add", "replace"] = "add",
) -> Group:
    """Reward each turn by its increase of a score of states: ``weight (gamma S(s_{k+1}) - S(s_k))``.

    Added to the rewards and with potential 0 at the end of an episode, this does not change the optimal policies (Ng,
    Harada and Russell 1999): along a finished episode the discounted differences sum to minus the start's potential.

    Args:
        group: Trajectories whose turns have the score of the state that they led to.
        weight: Factor.
        gamma: The discount that the estimator uses per turn.
        start: Potential of the first state, or a function from a group to it.
        potential: Potential of the state that a turn led to; None for its score.
        at_end: Potential after the last turn of a finished episode: 0, or the score, which rewards a good end.
        rewards: Whether to add to the turns' rewards or to replace them.
    """
    first = start(group) if callable(start) else start
    shaped = []
    for trajectory in group.trajectories:
        scores = [turn.score if potential is None else potential(turn) for turn in trajectory.turns]
        # After the last turn of a finished episode nothing is to come. A truncated one keeps the score of its last
        # state.
        if trajectory.finished and at_end == "zero" and scores:
            scores[-1] = 0.0
        gains = [weight * (gamma * after - before) for before, after in pairwise([first, *scores])]
        shaped.append(_added(trajectory, gains) if rewards == "add" else _rewarded(trajectory, gains))
    return Group(group.task, tuple(shaped))


def format_penalty(group: Group, *, penalty: float = 0.1) -> Group:
    """Subtract a penalty from every turn whose answer had an invalid format (0.1 in TSR).

    The wrapper `AnswerFormat` does the same; this rule is for environments that parse tags themselves.
    """
    return Group(
        group.task,
        tuple(
            _added(trajectory, [0.0 if turn.is_valid else -penalty for turn in trajectory.turns])
            for trajectory in group.trajectories
        ),
    )


def length_penalty(
    group: Group, *, max_tokens: int, cache: int, weight: float = 1.0, per: Literal["turn", "trajectory"] = "turn"
) -> Group:
    """Subtract a penalty that grows with length over the last tokens allowed (DAPO's soft overlong punishment).

    ``0`` up to ``max_tokens - cache`` tokens, ``-weight (length - (max_tokens - cache)) / cache`` up to `max_tokens`,
    and ``-weight`` beyond (arXiv 2503.14476, Eq. 13; there 20,480 tokens with a cache of 4,096).

    Args:
        group: Trajectories.
        max_tokens: Length from which the penalty is full.
        cache: Number of tokens before that over which it grows.
        weight: The full penalty.
        per: Whether each turn is penalised for its tokens, or the last turn for those of the whole trajectory.
    """
    check_counts(cache=cache)
    check_counts(least=cache, max_tokens=max_tokens)
    check_range(weight=weight)

    def penalty(tokens: int) -> float:
        return -weight * min(1.0, max(0.0, (tokens - (max_tokens - cache)) / cache))

    changed = []
    for trajectory in group.trajectories:
        if per == "turn":
            penalties = [penalty(len(turn.token_ids)) for turn in trajectory.turns]
        else:
            whole, last = penalty(trajectory.num_tokens), len(trajectory.turns) - 1
            penalties = [whole if number == last else 0.0 for number in range(last + 1)]
        changed.append(_added(trajectory, penalties))
    return Group(group.task, tuple(changed))


def undo_selection(group: Group, *, samples: int, kept: int, most: float = 10.0) -> Group:
    """Weight the trajectories that best-of-N kept by the number of samples that each represents.

    The weight is ``K / (N p)``, see `selection_weights`. The probability p of being kept is estimated from the returns
    of the group's plain play, so that the group must have both. Estimates are then of the policy and not of its best of
    N.

    Args:
        group: Trajectories, some of them selected, see `Trajectory.selected_by`.
        samples: Number of samples that they were selected from, N.
        kept: Number of samples that were kept, K.
        most: Largest weight.

    Raises:
        ValueError: The group has selected trajectories and no plain play.
    """
    plain = [trajectory.total_reward for trajectory in group.trajectories if trajectory.selected_by == "naive"]
    if not plain and group.trajectories:
        raise ValueError(f"task {group.task}: wanted trajectories of plain play in the group, got none: set naive >= 1")

    def counts(trajectory: Trajectory) -> float:
        if trajectory.selected_by == "naive":
            return 1.0
        return selection_weights([trajectory.total_reward], plain, samples=samples, kept=kept, most=most)[0]

    return Group(group.task, tuple(replace(each, counts=counts(each)) for each in group.trajectories))


def inclusion_probability(better: float, equal: float, *, samples: int, kept: int) -> float:
    """Return the probability that a sample is among the best K of N, with ties broken at random.

    With distinct returns this is ``P(Binomial(N - 1, better) < K)``; for K = 1 the familiar ``F^(N - 1)``, so that the
    kept sample has the density ``N F^(N - 1) pi``.

    Args:
        better: Probability that another sample has a larger return.
        equal: Probability that another sample has the same return, itself included in the distribution.
        samples: Number of samples, N.
        kept: Number of samples that are kept, K.

    Raises:
        ValueError: K is not in 1 ... N, or the probabilities are no probabilities.
    """
    if not 1 <= kept <= samples or better < 0 or equal < 0 or better + equal > 1 + 1e-9:
        raise ValueError(
            f"wanted 1 <= kept <= samples and probabilities that add up to at most 1, got kept {kept}, samples "
            f"{samples}, better {better} and equal {equal}"
        )
    # Sum over the numbers of other samples above and tied: of the tied + 1 equal samples, this one among them, kept -
    # above fit, at random.
    others, worse = samples - 1, max(0.0, 1 - better - equal)
    total = 0.0
    for above in range(min(kept, others + 1)):
        for tied in range(others - above + 1):
            ways = comb(others, above) * comb(others - above, tied)
            chance = better**above * equal**tied * worse ** (others - above - tied)
            total += ways * chance * min(1.0, (kept - above) / (tied + 1))
    return total


def selection_weights(
    returns: Sequence[float], plain: Sequence[float], *, samples: int, kept: int, most: float = 10.0
) -> list[float]:
    """Return the weights with which the kept trajectories represent all samples.

    ``K / (N p)`` with `inclusion_probability` p. The distribution of returns is estimated from plain play of the same
    task. With the true distribution, ``1/K sum w f`` is an unbiased estimate of the mean of f under the policy; with
    few plain trajectories, and with the bound, it is only less biased than weights of 1.

    Args:
        returns: Returns of the kept trajectories.
        plain: Returns of plain play of the same task, without selection.
        samples: Number of samples, N.
        kept: Number of samples that were kept, K.
        most: Largest weight: the worst of the kept would otherwise have no limit.
    """
    weights = []
    for value in returns:
        equal = sum(are_equal((other, value)) for other in plain)
        better = sum(other > value and not are_equal((other, value)) for other in plain)
        # The kept trajectory is a sample, too, and equal to itself.
        total = len(plain) + 1
        chance = inclusion_probability(better / total, (equal + 1) / total, samples=samples, kept=kept)
        weights.append(min(most, kept / (samples * chance)))
    return weights


def _added(trajectory: Trajectory, gains: Sequence[float]) -> Trajectory:
    return _rewarded(trajectory, [turn.reward + gain for turn, gain in zip(trajectory.turns, gains, strict=True)])


def _rewarded(trajectory: Trajectory, rewards: Sequence[float]) -> Trajectory:
    turns = zip(trajectory.turns, rewards, strict=True)
    return replace(trajectory, turns=tuple(replace(turn, reward=reward) for turn, reward in turns))
