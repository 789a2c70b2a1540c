"""Retrieval QA: how well each proxy score ranks searches by the best outcome that they leave within reach.

At the start of a question, and after one search, all candidate searches are rated: the question, its halves, its names,
titles that it finds, its decomposition, and random words. The outcome of a candidate is exact: the largest share of
supporting passages that any choice of further candidates can still show within the searches left, of which there are as
many as supporting passages. Reported per score: Spearman's rank correlation between score and outcome among the
candidates of one place, and how often the candidate that is rated best is one of the best, ties drawn at random; means
over questions, with 95 % intervals from resampling questions. Places where every candidate has the same outcome are
left out and counted. The label-free formula was chosen on the real questions; the generated ones had no part in it.
Run: python -m benchmarks.retrieval_calibration [--questions N]
"""

import argparse
from collections.abc import Iterator
from itertools import combinations
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import SHARED, write_result
from tsr_gym.state_env import NO_NOISE
from tsr_gym.wrappers import RetrievalQAScore
from tsr_gym.wrappers.retrieval_qa_score import Kind
from tsr_gym_envs.retrieval_qa.contract import Question
from tsr_gym_envs.retrieval_qa.env import RetrievalQAEnv, make
from tsr_gym_envs.retrieval_qa.plan import queries_of, sensible_turns
from tsr_gym_envs.retrieval_qa.protocol import parse, write_search
from tsr_gym_envs.retrieval_qa.state import RetrievalState

KINDS: tuple[Kind, ...] = get_args(Kind)
RANDOM_QUERIES = 3
RESAMPLES = 2000
Floats = NDArray[np.float64]


def candidates(env: RetrievalQAEnv, question: Question, vocabulary: list[str], rng: np.random.Generator) -> list[str]:
    """Return the queries that are rated at a question."""
    words = question.question.split()
    halves = (" ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :]))
    titles = env.searches.find((question.question,)).titles
    protocol = env.settings.protocol
    read = (parse(turn, protocol) for turn in sensible_turns(question.question, titles, protocol))
    sensible = [action.queries[0] for action in read if action.kind == "search"]
    noise = [" ".join(rng.choice(vocabulary, 3)) for _ in range(RANDOM_QUERIES)]
    return list(dict.fromkeys([*sensible, *halves, *queries_of(question), *noise]))


def best_reachable(have: frozenset[str], gains: list[frozenset[str]], searches: int) -> int:
    """Return how many supporting passages can be had with so many further searches."""
    useful = {gain - have for gain in gains} - {frozenset()}
    most = max((len(frozenset().union(*some)) for some in combinations(useful, min(searches, len(useful)))), default=0)
    return len(have) + most


def ranks(values: Floats) -> Floats:
    """Return ranks, tied values sharing the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: Floats = (last - (counts - 1) / 2)[inverse]
    return mean


def correlation(scores: Floats, outcomes: Floats) -> float:
    """Return Spearman's correlation; 0 where all scores are the same."""
    if np.ptp(scores) == 0:
        return 0.0
    return float(np.corrcoef(ranks(scores), ranks(outcomes))[0, 1])


def chance_of_best(scores: Floats, outcomes: Floats) -> float:
    """Return how likely a candidate with the highest score is one with the highest outcome."""
    return float(np.mean(outcomes[scores == scores.max()] == outcomes.max()))


class Place:
    """Where candidates are rated: their outcomes, and their scores by kind."""

    def __init__(self, outcomes: list[float], scores: dict[str, list[float]]) -> None:
        self.outcomes = np.array(outcomes)
        self.scores = {kind: np.array(values) for kind, values in scores.items()}

    @property
    def is_decided(self) -> bool:
        """Whether it does not matter which candidate is chosen."""
        return bool(np.ptp(self.outcomes) == 0)


def places(env: RetrievalQAEnv, question: Question, vocabulary: list[str], rng: np.random.Generator) -> Iterator[Place]:
    """Yield the start of a question, and what follows one random candidate."""
    protocol = env.settings.protocol
    scorers = {kind: RetrievalQAScore(env, kind=kind) for kind in KINDS}
    queries = candidates(env, question, vocabulary, rng)
    supporting = frozenset(question.supporting)
    gains = [supporting & frozenset(env.searches.find((query,)).ids) for query in queries]
    start = RetrievalState(env.questions.place_of({"question_id": question.id, "data_source": question.data_source}))
    first = env.transition(start, write_search(queries[int(rng.integers(len(queries)))], protocol), NO_NOISE).state
    for before in (start, first):
        left = len(supporting) - len(before.turns) - 1
        outcomes: list[float] = []
        scores: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for query in queries:
            text = write_search(query, protocol)
            step = env.transition(before, text, NO_NOISE)
            outcomes.append(best_reachable(frozenset(step.state.found), gains, left) / len(supporting))
            for kind, scorer in scorers.items():
                scores[kind].append(scorer.score(before, text, step.state, step.reward))
        yield Place(outcomes, scores)


def interval(per_question: list[list[float]], rng: np.random.Generator) -> dict[str, float]:
    """Return the mean over questions and its 95 % interval, questions resampled."""
    means = np.array([np.mean(values) for values in per_question])
    again = means[rng.integers(len(means), size=(RESAMPLES, len(means)))].mean(axis=1)
    low, high = np.percentile(again, [2.5, 97.5])
    return {"mean": float(means.mean()), "low": float(low), "high": float(high)}


def calibrate(env: RetrievalQAEnv, questions: list[Question]) -> dict[str, Any]:
    """Return what each score is worth on some questions."""
    rng = np.random.default_rng(0)
    vocabulary = [word for question in env.questions.questions for word in question.question.split()]
    by_question = [list(places(env, question, vocabulary, rng)) for question in questions]
    open_ones = [[place for place in some if not place.is_decided] for some in by_question]
    open_ones = [some for some in open_ones if some]
    numbers: dict[str, Any] = {
        "questions": len(questions),
        "places": sum(map(len, by_question)),
        "places_where_the_choice_matters": sum(map(len, open_ones)),
        "candidates_per_place": float(np.mean([len(some[0].outcomes) for some in by_question])),
        "random_choice_is_best": interval(
            [[float(np.mean(place.outcomes == place.outcomes.max())) for place in some] for some in open_ones], rng
        ),
    }
    for kind in KINDS:
        pairs = [[(place.scores[kind], place.outcomes) for place in some] for some in open_ones]
        numbers[kind] = {
            "rank_correlation": interval([[correlation(*pair) for pair in some] for some in pairs], rng),
            "choice_is_best": interval([[chance_of_best(*pair) for pair in some] for some in pairs], rng),
        }
    return numbers


def worlds() -> dict[str, RetrievalQAEnv]:
    """Return the environments by name: the generated world, and real questions where they are there."""
    found = {"generated": make(split="valid")}
    folder = SHARED / "data" / "retrieval"
    if folder.is_dir():
        found["real"] = make(folder / "mini_qa.jsonl", folder / "mini_corpus.jsonl")
    return found


def main() -> None:
    """Measure, and write results/retrieval_calibration.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--questions", type=int, default=300, help="questions per world")
    most = parser.parse_args().questions
    numbers: dict[str, Any] = {}
    for name, env in worlds().items():
        rng = np.random.default_rng(1)
        every = [question for question in env.questions.questions if len(question.supporting) > 1]
        every = [every[place] for place in rng.permutation(len(every))[:most]]
        numbers[name] = calibrate(env, every)
    what = "rank correlation of proxy scores with the best supporting recall that is still within reach, and how often "
    write_result("retrieval_calibration", {"what": what + "the choice by score is a best one", **numbers})


if __name__ == "__main__":
    main()
