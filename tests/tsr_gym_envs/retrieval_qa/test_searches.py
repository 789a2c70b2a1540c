"""Searches: a retriever is asked once, never for nothing, and its failures are not remembered."""

import pytest

from tests.tsr_gym_envs.retrieval_qa.fakes import BrokenRetriever, WordRetriever
from tsr_gym import RetrievalFailed
from tsr_gym.text_env import MAX_TEXT
from tsr_gym_envs.retrieval_qa.protocol import PROTOCOLS
from tsr_gym_envs.retrieval_qa.searches import MAX_QUERY, Searches


def searches(retriever, *, top_k=2, max_remembered=10, protocol="search-r1"):
    return Searches(retriever, PROTOCOLS[protocol], top_k, max_remembered)


def test_a_query_is_asked_once():
    retriever = WordRetriever()
    engine = searches(retriever)
    first = engine.find(("town",))
    assert engine.find(("town",)) is first
    assert first.ids == ("p1",)
    assert first.titles == ("Velden",)
    assert 'Doc 1(Title: "Velden") Velden is a town' in first.observation
    assert retriever.asked == [(("town",), 2)]


def test_only_so_many_searches_are_remembered():
    retriever = WordRetriever()
    engine = searches(retriever, max_remembered=2)
    for query in ("town", "law", "novel", "novel", "town"):
        engine.find((query,))
    assert [queries[0] for queries, _ in retriever.asked] == ["town", "law", "novel", "town"]


def test_several_queries_are_asked_at_once_and_shown_in_their_order():
    retriever = WordRetriever()
    found = searches(retriever, protocol="verl", top_k=1).find(("novel", " ", "town"))
    assert retriever.asked == [(("novel", "town"), 1)]
    assert found.ids == ("p4", "p1")
    assert found.observation.index("Karst") < found.observation.index("Velden")


@pytest.mark.parametrize("query", ["", " \n\t "])
def test_a_blank_query_finds_nothing_and_asks_nobody(query):
    retriever = WordRetriever()
    assert searches(retriever).find((query,)).ids == ()
    assert retriever.asked == []


def test_an_engine_is_never_given_what_it_could_not_take():
    retriever = WordRetriever()
    searches(retriever).find(("x" * 100_000, "\ud800 town\udfff "))
    (queries, _), *_ = retriever.asked
    assert queries == ("x" * MAX_QUERY, "? town?")


def test_a_failure_is_passed_on_and_not_remembered():
    retriever = BrokenRetriever()
    engine = searches(retriever)
    for _ in range(2):
        with pytest.raises(RetrievalFailed, match="start the server"):
            engine.find(("town",))
    retriever.broken = False
    assert engine.find(("town",)).ids == ("p1",)


def test_an_engine_that_answers_too_little_has_failed():
    class Forgetful(WordRetriever):
        def retrieve(self, queries, k):
            return super().retrieve(queries, k)[1:]

    with pytest.raises(RetrievalFailed, match="for 1 queries, got 0"):
        searches(Forgetful()).find(("town",))


def test_more_hits_than_were_asked_for_are_dropped():
    class Generous(WordRetriever):
        def retrieve(self, queries, k):
            return super().retrieve(queries, k + 5)

    assert searches(Generous(), top_k=1).find(("is a",)).ids == ("p0",)


def test_an_answer_is_looked_for_in_what_is_shown():
    corpus = (("p0", "T", "word " * 200 + "Velden"), ("p1", "Otto Brand", "word mayor"))
    engine = searches(WordRetriever(corpus))
    assert engine.holds_answer(("word",), ("Otto Brand",), "boundary")
    # Cut off with the end of the long passage.
    assert not engine.holds_answer(("word",), ("Velden",), "boundary")
    # Words of two passages are no answer.
    assert not engine.holds_answer(("word",), ("word Otto",), "boundary")
    assert not engine.holds_answer(("word",), ("or",), "boundary")
    assert engine.holds_answer(("word",), ("or",), "substring")


def test_no_observation_is_longer_than_text_may_be():
    corpus = tuple((str(place), "T", "x" * 80_000) for place in range(5))
    for protocol in PROTOCOLS:
        found = searches(WordRetriever(corpus), top_k=5, protocol=protocol).find(("t",))
        assert len(found.observation) <= MAX_TEXT
        assert len(found.ids) == 5
