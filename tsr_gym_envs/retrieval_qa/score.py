"""Proxies for how promising a search is: two that use the labels of a question, and one that uses none."""

from collections.abc import Sequence
from functools import lru_cache

from tsr_gym_envs.retrieval_qa.state import RetrievalState


def first_occurrence(state: RetrievalState, *, alpha: float) -> float:
    """Return alpha once a passage with a golden answer was shown, 0 before (after TSPO's FOLR, arXiv 2601.22776).

    FOLR gives alpha to the turns up to that one where the final answer is wrong. Uses the golden answers.
    """
    return 0.0 if state.answer_turn is None else alpha


def supporting_coverage(state: RetrievalState, supporting: Sequence[str]) -> float:
    """Return the share of the supporting passages that were shown; 0 where none is known. Uses their ids."""
    return len(state.found) / len(supporting) if supporting else 0.0


def search_promise(question: str, queries: Sequence[str], new: Sequence[str], read: Sequence[str]) -> float:
    """Return how much of the question the new passages speak of, times how much of the query is not made up.

    Novelty is that only passages count that were not shown before; overlap is the share of the question's words in
    them. The second factor is the share of the query's words that stand in the question or in passages read before.
    Words are analysed as the index analyses them. Uses no label.

    Args:
        question: The question.
        queries: The queries of the turn.
        new: The texts of the passages that this turn showed for the first time.
        read: The texts of the passages of earlier turns.
    """
    asked, query = words(question), words(" ".join(queries))
    known = asked.union(*map(words, read))
    return _share(asked, frozenset().union(*map(words, new))) * _share(query, known)


def answer_promise(question: str, answer: str, read: Sequence[str]) -> float:
    """Return how much of the answer stands in the passages read, times how much of the question does; no label."""
    known = frozenset().union(*map(words, read))
    return _share(words(answer), known) * _share(words(question), known)


# Passages are read again at every later turn, and in every branch.
@lru_cache(maxsize=8192)
def words(text: str) -> frozenset[str]:
    """Return the words of a text, stemmed and without stop words."""
    # Here, so that scorers can be imported without the libraries that analysing needs.
    from tsr_gym_envs.lucene_bm25 import analyse

    return frozenset(analyse(text))


def _share(part: frozenset[str], whole: frozenset[str]) -> float:
    return len(part & whole) / len(part) if part else 0.0
