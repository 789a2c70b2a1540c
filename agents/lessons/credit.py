"""Credit rules: Group -> Group, with the rewards of turns written anew before batching; no torch.

Every rule returns a new group and changes nothing but rewards, and `undo_selection` nothing but what trajectories
count.
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

CreditRule = Callable[[Group], Group]
Golds = Sequence[str] | Callable[[Group], Sequence[str]]

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
# These occur in any text by chance.
_ANYWHERE = frozenset({"yes", "no"})


def first_occurrence(
    group: Group,
    golds: Golds = (),
    *,
    alpha: float = 0.5,
    groups: Literal["all_wrong", "all"] = "all_wrong",
    match: Literal["boundary", "substring"] = "boundary",
    found: Callable[[Turn], bool] | Literal["score"] | None = None,
) -> Group:
    """Reward the turns of a failed search up to the one that first found the answer (FOLR of TSPO, arXiv 2601.22776).

    ``r_k = 1`` for every turn of a trajectory that solved the task. Otherwise ``r_k = alpha`` for ``k <= t*`` and 0
    after it, where t* is the first turn after which the environment showed a golden answer; 0 for every turn if it
    never did. `tspo` compares the turns of these groups; the sum of such rewards is no return.

    The published alpha and matching of text are not known. In a group that only failed, alpha makes no difference to
    advantages that are divided by the standard deviation.

    Args:
        group: Trajectories of one task, whose turns' `observation` is what was found in that turn.
        golds: Golden answers, or what gives them for a group; without any, those that the environment gave with each
            turn.
        alpha: What evidence is worth, ``0 < alpha <= 1``.
        groups: Which are rewritten: those in which every trajectory failed, as in the paper, or all. The others are
            returned as they are. `tspo` has the same choice, with the same default; the two belong together.
        match: ``"boundary"``: the words of the answer one after the other as whole words of the observation, both in
            lower case without punctuation and articles; answers that prove nothing are skipped: yes, no, and those of
            at most one character. ``"substring"``: anywhere and any answer (Search-R1).
        found: Whether a turn found the evidence, instead of `golds` and `match`: for observations that are not text,
            and for evidence by id; ``"score"`` for ``turn.score > 0``, for scorers that know the evidence, such as
            `RetrievalQAScore`.

    Raises:
        ValueError: Alpha is not a share, nobody gave golden answers, or observations are not text.
    """
    if not 0 < alpha <= 1:
        raise ValueError(f"wanted 0 < alpha <= 1, got {alpha}")
    if groups == "all_wrong" and any(trajectory.success for trajectory in group.trajectories):
        return group
    if found == "score":
        return _with_evidence(group, lambda turn: turn.score > 0, alpha)
    if found is None:
        answers = tuple(golds(group) if callable(golds) else golds)

        def found(turn: Turn) -> bool:
            return shows_answer(turn, answers or _given(turn), match=match)

    return _with_evidence(group, found, alpha)


def _given(turn: Turn) -> tuple[str, ...]:
    if not turn.golden_answers:
        raise ValueError(
            "there is nothing to look for: the environment gives no golden answers; name them in golds, or evidence in "
            "found, as in first_occurrence(found='score')"
        )
    return turn.golden_answers


def _with_evidence(group: Group, found: Callable[[Turn], bool], alpha: float) -> Group:
    return Group(group.task, tuple(_up_to_evidence(one, found, alpha) for one in group.trajectories))


def _up_to_evidence(trajectory: Trajectory, found: Callable[[Turn], bool], alpha: float) -> Trajectory:
    if trajectory.success:
        return _rewarded(trajectory, [1.0] * len(trajectory.turns))
    first = next((number for number, turn in enumerate(trajectory.turns) if found(turn)), -1)
    return _rewarded(trajectory, [alpha if number <= first else 0.0 for number in range(len(trajectory.turns))])


def shows_answer(turn: Turn, golds: tuple[str, ...], *, match: Literal["boundary", "substring"] = "boundary") -> bool:
    """Return whether what the environment answered holds a golden answer, as `first_occurrence` describes it.

    Raises:
        ValueError: It did not answer in text.
    """
    if not isinstance(turn.observation, str):
        raise ValueError(
            f"wanted an observation of text, got {type(turn.observation).__name__}: name evidence with found="
        )
    text = normalise(turn.observation)
    answers = [normalise(gold) for gold in golds]
    if match == "substring":
        return any(answer in text for answer in answers)
    padded = f" {text} "
    return any(f" {answer} " in padded for answer in answers if len(answer) > 1 and answer not in _ANYWHERE)


# A search shows the same passages again and again, and every turn is compared with the same answers.
@lru_cache(maxsize=4096)
def normalise(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation and articles, words one blank apart (SQuAD).

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
    """Reward each turn by how much it raised a score of states: ``weight (gamma S(s_{k+1}) - S(s_k))``.

    Added to the rewards and with potential 0 where an episode ended, this leaves the order of policies as it was (Ng,
    Harada and Russell 1999): along a finished episode the discounted differences sum to minus the start's potential.

    Args:
        group: Trajectories whose turns carry the score of the state that they led to.
        weight: Factor.
        gamma: The discount that the estimator uses per turn.
        start: Potential of the first state, or what gives it for a group.
        potential: Potential of the state that a turn led to; None for its score.
        at_end: Potential after the last turn of a finished episode: 0, or the score, which rewards a good end.
        rewards: Whether the turns keep their rewards besides.
    """
    first = start(group) if callable(start) else start
    shaped = []
    for trajectory in group.trajectories:
        scores = [turn.score if potential is None else potential(turn) for turn in trajectory.turns]
        if trajectory.finished and at_end == "zero" and scores:
            scores[-1] = 0.0
        gains = [weight * (gamma * after - before) for before, after in pairwise([first, *scores])]
        shaped.append(_added(trajectory, gains) if rewards == "add" else _rewarded(trajectory, gains))
    return Group(group.task, tuple(shaped))


def format_penalty(group: Group, *, penalty: float = 0.1) -> Group:
    """Take a penalty off every turn whose answer had not the wanted form (0.1 in TSR).

    `AnswerFormat` does so already where it stands above an environment; this is for environments that read tags
    themselves.
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
    """Take off a penalty that grows with length over the last tokens allowed (DAPO's soft overlong punishment).

    ``0`` up to ``max_tokens - cache`` tokens, ``-weight (length - (max_tokens - cache)) / cache`` up to `max_tokens`,
    and ``-weight`` beyond (arXiv 2503.14476, Eq. 13; there 20,480 tokens with a cache of 4,096).

    Args:
        group: Trajectories.
        max_tokens: From where on the penalty is full.
        cache: Over how many tokens before that it grows.
        weight: The full penalty.
        per: Whether each turn's tokens count by themselves, or a trajectory's together and at its last turn.
    """
    if not 0 < cache <= max_tokens:
        raise ValueError(f"wanted 0 < cache <= max_tokens, got cache {cache} and max_tokens {max_tokens}")

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
    """Let trajectories that best-of-N kept count as much as they stand for, beside plain play of the same task.

    Each counts ``K / (N p)``, see `selection_weights`; the returns of the group's plain play tell how likely it was to
    be kept, so the group has to be a mixed one. Estimates are then of the policy itself and not of its best of N.

    Args:
        group: Trajectories, some of them selected, see `Trajectory.selected_by`.
        samples: Of how many they were selected, N.
        kept: How many were kept, K.
        most: Largest weight.

    Raises:
        ValueError: Something was selected and there is no plain play to compare it with.
    """
    plain = [one.total_reward for one in group.trajectories if one.selected_by == "naive"]
    if not plain and group.trajectories:
        raise ValueError(f"task {group.task}: wanted trajectories of plain play in the group, got none: set naive >= 1")

    def counts(one: Trajectory) -> float:
        if one.selected_by == "naive":
            return 1.0
        return selection_weights([one.total_reward], plain, samples=samples, kept=kept, most=most)[0]

    return Group(group.task, tuple(replace(one, counts=counts(one)) for one in group.trajectories))


def inclusion_probability(better: float, equal: float, *, samples: int, kept: int) -> float:
    """Return the probability that a sample is among the best, ties broken by lot.

    With distinct returns this is ``P(Binomial(N - 1, better) < K)``; for K = 1 the familiar ``F^(N - 1)``, so that the
    kept sample has the density ``N F^(N - 1) pi``.

    Args:
        better: Probability that another sample has a larger return.
        equal: Probability that another sample has the same return, itself included in the distribution.
        samples: How many are drawn, N.
        kept: How many of them are kept, K.
    """
    if not 1 <= kept <= samples or better < 0 or equal < 0 or better + equal > 1 + 1e-9:
        raise ValueError(
            f"wanted 1 <= kept <= samples and probabilities that add up to at most 1, got kept {kept}, samples "
            f"{samples}, better {better} and equal {equal}"
        )
    others, worse = samples - 1, max(0.0, 1 - better - equal)
    total = 0.0
    for above in range(min(kept, others + 1)):
        for beside in range(others - above + 1):
            ways = comb(others, above) * comb(others - above, beside)
            chance = better**above * equal**beside * worse ** (others - above - beside)
            total += ways * chance * min(1.0, (kept - above) / (beside + 1))
    return total


def selection_weights(
    returns: Sequence[float], plain: Sequence[float], *, samples: int, kept: int, most: float = 10.0
) -> list[float]:
    """Return the weights with which kept trajectories stand for all that were sampled.

    ``K / (N p)`` with `inclusion_probability` p. The distribution of returns is read off plain play of the same task:
    with the true one, ``1/K sum w f`` is an unbiased estimate of the mean of f under the policy; with few plain
    trajectories, and with the bound, it is only less biased than weights of 1.

    Args:
        returns: Of the kept trajectories.
        plain: Returns of plain play of the same task, none of them selected.
        samples: How many were sampled, N.
        kept: How many of them were kept, K.
        most: Largest weight: the worst of the kept would otherwise count without limit.
    """
    weights = []
    for value in returns:
        equal = sum(are_equal((other, value)) for other in plain)
        better = sum(other > value and not are_equal((other, value)) for other in plain)
        # The kept trajectory is itself a sample with its return.
        total = len(plain) + 1
        chance = inclusion_probability(better / total, (equal + 1) / total, samples=samples, kept=kept)
        weights.append(min(most, kept / (samples * chance)))
    return weights


def _added(trajectory: Trajectory, gains: Sequence[float]) -> Trajectory:
    return _rewarded(trajectory, [turn.reward + gain for turn, gain in zip(trajectory.turns, gains, strict=True)])


def _rewarded(trajectory: Trajectory, rewards: Sequence[float]) -> Trajectory:
    turns = zip(trajectory.turns, rewards, strict=True)
    return replace(trajectory, turns=tuple(replace(turn, reward=reward) for turn, reward in turns))
