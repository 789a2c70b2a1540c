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
    """Return the share of the question in the new passages, times the share of the query that is grounded.

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
    seen = asked.union(*map(words, read))
    return _share(asked, frozenset().union(*map(words, new))) * _share(query, seen)


def answer_promise(question: str, answer: str, read: Sequence[str]) -> float:
    """Return the share of the answer in the passages read, times that of the question; uses no label."""
    seen = frozenset().union(*map(words, read))
    return _share(words(answer), seen) * _share(words(question), seen)


# Passages are read again at every later turn, and in every branch.
@lru_cache(maxsize=8192)
def words(text: str) -> frozenset[str]:
    """Return the words of a text, stemmed and without stop words."""
    # Imported here, so that importing the scorers does not load the analyser's libraries.
    from tsr_gym_envs.lucene_bm25 import analyse

    return frozenset(analyse(text))


def _share(part: frozenset[str], whole: frozenset[str]) -> float:
    return len(part & whole) / len(part) if part else 0.0
