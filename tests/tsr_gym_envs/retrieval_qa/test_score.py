"""Proxy scores: formulas with numbers worked out by hand."""

import pytest

from tsr_gym_envs.retrieval_qa.score import (
    answer_promise,
    first_occurrence,
    search_promise,
    supporting_coverage,
    words,
)
from tsr_gym_envs.retrieval_qa.state import RetrievalState

QUESTION = "Who is the mayor of the town where Ada Moor was born?"


def test_evidence_is_worth_alpha_from_the_turn_that_showed_it():
    assert first_occurrence(RetrievalState(0), alpha=0.5) == 0.0
    assert first_occurrence(RetrievalState(0, answer_turn=3), alpha=0.5) == 0.5


def test_coverage_is_the_share_of_the_supporting_passages():
    state = RetrievalState(0, found=("p1",))
    assert supporting_coverage(state, ("p0", "p1", "p2", "p3")) == 0.25
    assert supporting_coverage(RetrievalState(0), ()) == 0.0


def test_words_are_those_of_the_index():
    # "is", "the" and "of" are stop words; Porter's stems.
    assert words("The mayors of towns, singing") == {"mayor", "town", "sing"}


@pytest.mark.parametrize(
    ("query", "new", "read", "score"),
    [
        # The question has 7 words besides stop words: who, mayor, town, where, ada, moor, born. Two of them are found.
        ("Ada Moor", ["Ada Moor was"], [], 2 / 7),
        # Half of the query is made up.
        ("Ada Karst", ["Ada Moor was"], [], 2 / 7 / 2),
        # A word that was read is not made up, and what was read before is not found again.
        ("Velden mayor", ["The mayor of the town"], ["Ada Moor was born in Velden"], 2 / 7),
        ("Ada Moor", [], ["Ada Moor was"], 0.0),
        ("", ["Ada"], [], 0.0),
        ("the", ["Ada"], [], 0.0),
    ],
)
def test_a_search_promises_what_new_passages_say_of_the_question(query, new, read, score):
    assert search_promise(QUESTION, [query], new, read) == pytest.approx(score)


def test_an_answer_promises_as_much_as_it_and_the_question_were_read_of():
    read = ["Ada Moor was born in Velden", "The mayor of the town Velden is Otto"]
    # Five of seven words of the question, and one of two of the answer.
    assert answer_promise(QUESTION, "Otto Brand", read) == pytest.approx(5 / 7 / 2)
    assert answer_promise(QUESTION, "Otto", []) == 0.0
    assert answer_promise(QUESTION, "", read) == 0.0
