"""What retrieval allows scripted players, and what the proxy scores of retrieval QA are worth.

- players: exact match and recall of a single query, of scripted decomposition, and of the best that k searches can do.
  All players use labels, so these are bounds, not results of an agent. The recall of the question as the only query is
  reported too; for the real questions next to what BM25 gave on 2,439 questions of the same data sets and corpus. Every
  number is a mean with the ends of its 95 % interval.
- calibration: how well each proxy score ranks searches by the best outcome that they leave within reach. At the start
  of a question, and after one search, candidate searches are rated: the question, its halves, its names, titles that it
  finds, its decomposition, and random words. The outcome of a candidate is exact: the largest share of supporting
  passages that any choice of further candidates can still show within the searches left, of which there are as many as
  supporting passages. Reported per score: Spearman's rank correlation among the candidates of one place, and how often
  the candidate with the best score is one of the best, ties drawn at random; means over questions with 95 % intervals
  from resampling questions. Places where every candidate has the same outcome are left out and counted. The label-free
  formula was chosen on the real questions only.

The real mini set is measured where ../shared exists, the generated world always.

Run: python -m benchmarks.retrieval_players [players] [calibration] [--questions N]
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import SHARED, run_parts, write_result
from tsr_gym.seeds import derive_seed
from tsr_gym.state_env import NO_NOISE
from tsr_gym.wrappers import RetrievalQAScore
from tsr_gym.wrappers.world_scores import EvidenceScore
from tsr_gym_envs.retrieval_qa.contract import Question, Retriever
from tsr_gym_envs.retrieval_qa.env import RetrievalQAEnv, make
from tsr_gym_envs.retrieval_qa.grading import contains_answer
from tsr_gym_envs.retrieval_qa.plan import queries_of, sensible_turns
from tsr_gym_envs.retrieval_qa.players import (
    Oracle,
    Player,
    QuestionResult,
    ScriptedSearcher,
    SingleQuery,
    best_searches,
    play,
)
from tsr_gym_envs.retrieval_qa.protocol import parse, write_search
from tsr_gym_envs.retrieval_qa.state import RetrievalState
from tsr_gym_envs.retrieval_qa.world import default_world

MAX_SEARCHES, TOP_K = 4, 3
RESAMPLES = 2_000
# Measured before, on the larger draw; in the order of RECALLS.
LARGER_DRAW = {
    "hotpotqa dev": (0.91, 0.38, 0.75, 448 / 785),
    "2wikimultihopqa dev": (0.99, 0.32, 0.46, 91 / 164),
    "musique dev": (0.79, 0.07, 0.18, 85 / 300),
    "squad dev": (0.93, 0.93, 0.97, 1100 / 1190),
}
RECALLS = ("any supporting @3", "all supporting @3", "all supporting @10", "answer @3")


def mean(values: Sequence[float]) -> list[float]:
    """Return a mean and the ends of its 95 % interval, by resampling questions."""
    numbers = np.asarray(values, np.float64)
    rng = np.random.default_rng(derive_seed(0, "bootstrap", len(numbers)))
    means = numbers[rng.integers(len(numbers), size=(RESAMPLES, len(numbers)))].mean(axis=1)
    return [round(float(number), 4) for number in (numbers.mean(), *np.percentile(means, (2.5, 97.5)))]


def summary(played: Sequence[QuestionResult]) -> dict[str, Any]:
    """Return means and intervals of a player's results."""
    recalls = [result.supporting_recall for result in played if result.supporting_recall is not None]
    return {
        "exact match": mean([result.exact_match for result in played]),
        "answer recall": mean([result.answer_seen for result in played]),
        "supporting recall": mean(recalls),
        "all supporting": mean([recall == 1 for recall in recalls]),
        "searches": mean([result.searches for result in played]),
    }


def single_query_recall(questions: Sequence[Question], retriever: Retriever) -> dict[str, Any]:
    """Return the recall of the question as the only query, of passages as they are in the corpus.

    Yes and no and answers of one character never count as found.
    """
    rows = []
    hits = retriever.retrieve([question.question for question in questions], 10)
    for question, passages in zip(questions, hits, strict=True):
        gold = set(question.supporting)
        top, all_ten = {passage.id for passage in passages[:3]}, {passage.id for passage in passages}
        answered = any(contains_answer(passage.contents, question.golden_answers) for passage in passages[:3])
        rows.append((bool(gold & top), gold <= top, gold <= all_ten, answered))
    return {name: mean([row[place] for row in rows]) for place, name in enumerate(RECALLS)}


def by_group(questions: Iterable[Question], group: Callable[[Question], str]) -> dict[str, list[Question]]:
    """Return questions by what they are reported under."""
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(group(question), []).append(question)
    return dict(sorted(groups.items()))


def measure_set(
    env: RetrievalQAEnv, corpus: Path, group: Callable[[Question], str], most: int | None
) -> dict[str, Any]:
    """Return the results of every player on each group of an environment's questions."""
    titles = {}
    for line in corpus.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        titles[row["id"]] = row["contents"].partition("\n")[0].strip('"')
    players: Mapping[str, Callable[[Question], Player]] = {
        "single query": lambda question: SingleQuery(question, env.settings.protocol),
        "scripted searcher": lambda question: ScriptedSearcher(question, env.settings.protocol),
        "oracle": lambda question: Oracle(
            question,
            env.settings.protocol,
            best_searches(question, env.searches.retriever, titles, max_searches=MAX_SEARCHES, top_k=TOP_K),
        ),
    }
    numbers: dict[str, Any] = {}
    for name, questions in by_group(env.questions.questions[:most], group).items():
        numbers[name] = {
            "questions": len(questions),
            "with decomposition": sum(bool(question.steps) for question in questions),
            **{player: summary([play(env, q, make_one(q)) for q in questions]) for player, make_one in players.items()},
            "question as query": single_query_recall(questions, env.searches.retriever),
        }
        if name in LARGER_DRAW:
            numbers[name]["question as query, larger draw"] = dict(zip(RECALLS, LARGER_DRAW[name], strict=True))
    return numbers


def multi_hop_recall(env: RetrievalQAEnv) -> list[float]:
    """Return answer@3 of the question as query where two or more hops are asked; yes/no questions do not count."""
    asked = [question for question in env.questions.questions if (question.hops or 0) >= 2]
    answerable = [question for question in asked if question.golden_answers[0] not in ("yes", "no")]
    recall: list[float] = single_query_recall(answerable, env.searches.retriever)["answer @3"]
    return recall


def measure_players(most: int | None) -> None:
    """Measure, and write results/retrieval_players.json."""
    settings = {"max_turns": MAX_SEARCHES, "top_k": TOP_K, "protocol": "search-r1"}
    folder = default_world()
    world = make(max_turns=MAX_SEARCHES, top_k=TOP_K)
    numbers: dict[str, Any] = {
        "settings": settings,
        "generated world": measure_set(
            world, folder / "corpus.jsonl", lambda question: question.id.partition("-")[0], most
        ),
        "generated world, all": measure_set(world, folder / "corpus.jsonl", lambda _: "all", most)["all"],
        "generated world, two or more hops, answer @3 of the question as query": multi_hop_recall(world),
    }
    data = SHARED / "data" / "retrieval"
    if data.is_dir():
        corpus = data / "mini_corpus.jsonl"
        real = make(questions=data / "mini_qa.jsonl", corpus=corpus, max_turns=MAX_SEARCHES, top_k=TOP_K)
        numbers["real mini set"] = measure_set(
            real, corpus, lambda question: f"{question.data_source} {question.split}", most
        )
    else:
        numbers["real mini set"] = f"skipped: wanted the folder {data}, which is not there"
    write_result("retrieval_players", numbers)


KINDS: tuple[EvidenceScore, ...] = get_args(EvidenceScore)
RANDOM_QUERIES = 3
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
        self.scores = {name: np.array(values) for name, values in scores.items()}

    @property
    def is_decided(self) -> bool:
        """Whether it does not matter which candidate is chosen."""
        return bool(np.ptp(self.outcomes) == 0)


def places(env: RetrievalQAEnv, question: Question, vocabulary: list[str], rng: np.random.Generator) -> Iterator[Place]:
    """Yield the start of a question, and what follows one random candidate."""
    protocol = env.settings.protocol
    scorers = {name: RetrievalQAScore(env, kind=name) for name in KINDS}
    queries = candidates(env, question, vocabulary, rng)
    supporting = frozenset(question.supporting)
    gains = [supporting & frozenset(env.searches.find((query,)).ids) for query in queries]
    start = RetrievalState(env.questions.place_of({"question_id": question.id, "data_source": question.data_source}))
    first = env.transition(start, write_search(queries[int(rng.integers(len(queries)))], protocol), NO_NOISE).state
    for before in (start, first):
        left = len(supporting) - len(before.turns) - 1
        outcomes: list[float] = []
        scores: dict[str, list[float]] = {name: [] for name in KINDS}
        for query in queries:
            text = write_search(query, protocol)
            step = env.transition(before, text, NO_NOISE)
            outcomes.append(best_reachable(frozenset(step.state.found), gains, left) / len(supporting))
            for name, scorer in scorers.items():
                scores[name].append(scorer.score(before, text, step.state, step.reward))
        yield Place(outcomes, scores)


def interval(per_question: list[list[float]], rng: np.random.Generator) -> dict[str, float]:
    """Return the mean over questions and its 95 % interval, questions resampled."""
    means = np.array([np.mean(values) for values in per_question])
    again = means[rng.integers(len(means), size=(RESAMPLES, len(means)))].mean(axis=1)
    low, high = np.percentile(again, [2.5, 97.5])
    return {"mean": float(means.mean()), "low": float(low), "high": float(high)}


def calibrate(env: RetrievalQAEnv, questions: list[Question]) -> dict[str, Any]:
    """Return rank correlation and choice quality of each score on some questions."""
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
    for name in KINDS:
        pairs = [[(place.scores[name], place.outcomes) for place in some] for some in open_ones]
        numbers[name] = {
            "rank_correlation": interval([[correlation(*pair) for pair in some] for some in pairs], rng),
            "choice_is_best": interval([[chance_of_best(*pair) for pair in some] for some in pairs], rng),
        }
    return numbers


def worlds() -> dict[str, RetrievalQAEnv]:
    """Return the environments by name: the generated world, and real questions where they are there."""
    envs = {"generated": make(split="valid")}
    folder = SHARED / "data" / "retrieval"
    if folder.is_dir():
        envs["real"] = make(folder / "mini_qa.jsonl", folder / "mini_corpus.jsonl")
    return envs


def measure_calibration(most: int) -> None:
    """Measure, and write results/retrieval_calibration.json."""
    numbers: dict[str, Any] = {}
    for name, env in worlds().items():
        rng = np.random.default_rng(1)
        every = [question for question in env.questions.questions if len(question.supporting) > 1]
        every = [every[place] for place in rng.permutation(len(every))[:most]]
        numbers[name] = calibrate(env, every)
    what = "rank correlation of proxy scores with the best supporting recall that is still within reach, and how often "
    write_result("retrieval_calibration", {"what": what + "the choice by score is a best one", **numbers})


def main() -> None:
    """Run the measurements that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="players, calibration; all by default")
    parser.add_argument("--questions", type=int, help="most questions: of each set for players, of each world (300)")
    args = parser.parse_args()
    calibration = partial(measure_calibration, args.questions or 300)
    run_parts({"players": partial(measure_players, args.questions), "calibration": calibration}, args.parts)


if __name__ == "__main__":
    main()
