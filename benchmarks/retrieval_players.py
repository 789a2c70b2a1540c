"""What scripted players of retrieval QA reach: single query, decomposition, and the best that k searches can do.

On the real mini set where ../shared is there, and on the generated world. All players know labels; the table says what
retrieval allows, not what an agent does. Beside them stands the recall of the question as the only query, for the real
questions next to what BM25 was measured to give on 2,439 questions of the same data sets over the same corpus.

Every number is a mean with the ends of its 95 % interval.

Run: python -m benchmarks.retrieval_players [most questions of each set]
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import SHARED, write_result
from tsr_gym.seeds import derive_seed
from tsr_gym_envs.retrieval_qa.contract import Question, Retriever
from tsr_gym_envs.retrieval_qa.env import RetrievalQAEnv, make
from tsr_gym_envs.retrieval_qa.grading import contains_answer
from tsr_gym_envs.retrieval_qa.players import (
    Oracle,
    Player,
    QuestionResult,
    ScriptedSearcher,
    SingleQuery,
    best_searches,
    play,
)
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
    found = np.asarray(values, np.float64)
    rng = np.random.default_rng(derive_seed(0, "bootstrap", len(found)))
    means = found[rng.integers(len(found), size=(RESAMPLES, len(found)))].mean(axis=1)
    return [round(float(number), 4) for number in (found.mean(), *np.percentile(means, (2.5, 97.5)))]


def summary(played: Sequence[QuestionResult]) -> dict[str, Any]:
    """Return what a player reached."""
    recalls = [one.supporting_recall for one in played if one.supporting_recall is not None]
    return {
        "exact match": mean([one.exact_match for one in played]),
        "answer recall": mean([one.answer_seen for one in played]),
        "supporting recall": mean(recalls),
        "all supporting": mean([recall == 1 for recall in recalls]),
        "searches": mean([one.searches for one in played]),
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
    found: dict[str, list[Question]] = {}
    for question in questions:
        found.setdefault(group(question), []).append(question)
    return dict(sorted(found.items()))


def measure_set(
    env: RetrievalQAEnv, corpus: Path, group: Callable[[Question], str], most: int | None
) -> dict[str, Any]:
    """Return what every player reaches on each group of an environment's questions."""
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


def sort_of(question: Question) -> str:
    """Return what a question of the generated world is reported under."""
    return question.id.partition("-")[0]


def source_of(question: Question) -> str:
    """Return what a real question is reported under."""
    return f"{question.data_source} {question.split}"


def multi_hop_recall(env: RetrievalQAEnv) -> list[float]:
    """Return answer@3 of the question as query where two or more hops are asked; yes/no questions do not count."""
    asked = [question for question in env.questions.questions if (question.hops or 0) >= 2]
    said = [question for question in asked if question.golden_answers[0] not in ("yes", "no")]
    recall: list[float] = single_query_recall(said, env.searches.retriever)["answer @3"]
    return recall


def main() -> None:
    """Measure, and write results/retrieval_players.json."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else None
    settings = {"max_turns": MAX_SEARCHES, "top_k": TOP_K, "protocol": "search-r1"}
    folder = default_world()
    world = make(max_turns=MAX_SEARCHES, top_k=TOP_K)
    numbers: dict[str, Any] = {
        "settings": settings,
        "generated world": measure_set(world, folder / "corpus.jsonl", sort_of, most),
        "generated world, all": measure_set(world, folder / "corpus.jsonl", lambda _: "all", most)["all"],
        "generated world, two or more hops, answer @3 of the question as query": multi_hop_recall(world),
    }
    data = SHARED / "data" / "retrieval"
    if data.is_dir():
        corpus = data / "mini_corpus.jsonl"
        real = make(questions=data / "mini_qa.jsonl", corpus=corpus, max_turns=MAX_SEARCHES, top_k=TOP_K)
        numbers["real mini set"] = measure_set(real, corpus, source_of, most)
    else:
        numbers["real mini set"] = f"skipped: wanted the folder {data}, which is not there"
    write_result("retrieval_players", numbers)


if __name__ == "__main__":
    main()
