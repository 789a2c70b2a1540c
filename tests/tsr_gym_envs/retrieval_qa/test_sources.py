"""Questions and searches: sets, splits, settings of the generated world, remembered searches and their scores."""

import json

import pytest

from tests.tsr_gym_envs.retrieval_qa.fakes import QUESTIONS, BrokenRetriever, WordRetriever
from tsr_gym import ConfigError, InvalidCorpus, RetrievalFailed
from tsr_gym.text_env import MAX_TEXT
from tsr_gym_envs.retrieval_qa.contract import Question
from tsr_gym_envs.retrieval_qa.env import make
from tsr_gym_envs.retrieval_qa.plan import MAX_QUERY, Searches
from tsr_gym_envs.retrieval_qa.protocol import PROTOCOLS
from tsr_gym_envs.retrieval_qa.questions import question_set, read_questions, world_settings
from tsr_gym_envs.retrieval_qa.state import (
    RetrievalState,
    answer_promise,
    first_occurrence,
    search_promise,
    supporting_coverage,
    words,
)
from tsr_gym_envs.retrieval_qa.world import WorldSettings


def plain(name, split="", source="s"):
    return Question(name, source, "Who?", ("x",), split=split)


def test_published_splits_are_kept_under_this_projects_names():
    questions = question_set([plain("a", "train"), plain("b", "dev"), plain("c", "validation"), plain("d", "test")])
    assert (questions.of_split("all"), questions.of_split("train")) == ((0, 1, 2, 3), (0,))
    assert (questions.of_split("valid"), questions.of_split("test")) == ((1, 2), (3,))


def test_questions_without_a_split_fall_into_eight_one_and_one_tenths_by_their_name_alone():
    whole = question_set([plain(str(number)) for number in range(2000)])
    parts = {split: set(whole.of_split(split)) for split in ("train", "valid", "test")}
    assert set.union(*parts.values()) == set(range(2000))
    assert sum(map(len, parts.values())) == 2000
    # Four standard deviations of 2000 draws.
    assert abs(len(parts["train"]) - 1600) < 72
    assert abs(len(parts["valid"]) - 200) < 54
    half = question_set([plain(str(number)) for number in range(0, 2000, 2)])
    assert {2 * place for place in half.of_split("test")} == {place for place in parts["test"] if place % 2 == 0}
    other = question_set([plain(str(number), source="t") for number in range(2000)])
    assert set(other.of_split("test")) != parts["test"]


def test_splits_without_questions_and_equal_names_are_refused():
    with pytest.raises(ConfigError, match="questions of split 'test', got none among 1"):
        question_set([plain("a", "train")]).of_split("test")
    with pytest.raises(ConfigError, match=r"wanted split of .*got 'dev'"):
        question_set(QUESTIONS).of_split("dev")
    with pytest.raises(InvalidCorpus, match="at least one question"):
        question_set([])
    with pytest.raises(InvalidCorpus, match=r"\('s', 'a'\) twice"):
        question_set([plain("a"), plain("a")])


def test_a_question_is_found_by_its_id_and_where_need_be_its_source():
    questions = question_set(QUESTIONS)
    assert questions.place_of({"question_id": "q2"}) == 2
    assert questions.place_of({"question_id": "q0", "data_source": "other"}) == 3
    with pytest.raises(ConfigError, match="'q0' of data source None, which 2 have"):
        questions.place_of({"question_id": "q0"})
    with pytest.raises(ConfigError, match="'q9' of data source None, which 0 have"):
        questions.place_of({"question_id": "q9"})
    assert question_set([plain("7")]).place_of({"question_id": 7}) == 0


def test_the_digest_covers_every_field_and_the_order():
    first, *rest = QUESTIONS
    digests = {
        question_set(questions).digest
        for questions in (
            QUESTIONS, QUESTIONS[:3], [*rest, first], [first._replace(golden_answers=("x",)), *rest],
            [first._replace(supporting=()), *rest], [first._replace(steps=()), *rest],
            [first._replace(question="\ud800"), *rest],
        )
    }  # fmt: skip
    assert len(digests) == 7
    assert question_set(list(QUESTIONS)).digest in digests


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path):
    path = tmp_path / "questions.jsonl"
    row = {"id": "a", "data_source": "s", "question": "Who?", "golden_answers": ["x"], "split": "train"}
    path.write_text(json.dumps(row) + "\n")
    read = read_questions(path)
    assert read.questions[0].group == ("s", "a")
    assert read_questions(str(path)) is read
    path.write_text(json.dumps({**row, "id": "other"}) + "\n")
    assert read_questions(path).questions[0].id == "other"
    with pytest.raises(InvalidCorpus, match="which is not there"):
        read_questions(tmp_path / "none.jsonl")


def test_the_environment_asks_the_questions_of_the_world_that_was_wanted():
    env = make(entities=300, questions=40, hops=[2], world_seed=5)
    assert len(env.questions.questions) == 40
    assert {len(question.steps) for question in env.questions.questions} == {2}
    other = make(entities=300, questions=40, hops=[2], world_seed=6)
    assert other.questions.digest != env.questions.digest


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hops": [0, 1]}, "wanted hops as numbers from 1 to 4"),
        ({"hops": []}, "wanted hops as numbers"),
        ({"hops": "1-2"}, "wanted hops as numbers"),
        ({"entities": "many"}, "wanted entities as a whole number, got 'many'"),
        ({"entities": 10}, "wanted num_entities >= 300"),
        ({"questions": QUESTIONS, "retriever": WordRetriever(), "entities": 400}, "settings of the generated world"),
        ({"questions": 40, "retriever": WordRetriever()}, "settings of the generated world"),
    ],
    ids=["none", "empty", "text", "words", "few", "beside questions", "beside a retriever"],
)
def test_settings_that_make_no_world_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        make(**settings)


def searches(retriever, *, top_k=2, max_remembered=10, protocol="search-r1"):
    return Searches(retriever, PROTOCOLS[protocol], top_k, max_remembered)


def test_a_query_is_asked_once_while_it_is_remembered():
    retriever = WordRetriever()
    engine = searches(retriever)
    first = engine.find(("town",))
    assert engine.find(("town",)) is first
    assert (first.ids, first.titles) == (("p1",), ("Velden",))
    assert 'Doc 1(Title: "Velden") Velden is a town' in first.observation
    assert retriever.asked == [(("town",), 2)]
    retriever = WordRetriever()
    engine = searches(retriever, max_remembered=2)
    for query in ("town", "law", "novel", "novel", "town"):
        engine.find((query,))
    assert [queries[0] for queries, _ in retriever.asked] == ["town", "law", "novel", "town"]


def test_queries_are_asked_at_once_in_their_order_and_blank_or_endless_ones_are_not():
    retriever = WordRetriever()
    found = searches(retriever, protocol="verl", top_k=1).find(("novel", " ", "town"))
    assert retriever.asked == [(("novel", "town"), 1)]
    assert found.ids == ("p4", "p1")
    assert found.observation.index("Karst") < found.observation.index("Velden")
    retriever = WordRetriever()
    searches(retriever).find(("x" * 100_000, "\ud800 town\udfff "))
    (queries, _), *_ = retriever.asked
    assert queries == ("x" * MAX_QUERY, "? town?")


def test_failures_are_passed_on_and_not_remembered_and_surplus_hits_dropped():
    retriever = BrokenRetriever()
    engine = searches(retriever)
    for _ in range(2):
        with pytest.raises(RetrievalFailed, match="start the server"):
            engine.find(("town",))
    retriever.broken = False
    assert engine.find(("town",)).ids == ("p1",)

    class Forgetful(WordRetriever):
        def retrieve(self, queries, k):
            return super().retrieve(queries, k)[1:]

    with pytest.raises(RetrievalFailed, match="for 1 queries, got 0"):
        searches(Forgetful()).find(("town",))

    class Generous(WordRetriever):
        def retrieve(self, queries, k):
            return super().retrieve(queries, k + 5)

    assert searches(Generous(), top_k=1).find(("is a",)).ids == ("p0",)


def test_what_is_not_set_of_a_world_stays_and_hops_are_asked_for_equally_often():
    assert world_settings(None, None, None, 0) == WorldSettings()
    assert world_settings(500, 90, None, 3) == WorldSettings(seed=3, num_entities=500, num_questions=90)
    wanted = ((2, (0, 1, 0, 0)), ([1, 2], (1, 1, 0, 0)), (range(1, 5), (1, 1, 1, 1)), ((4,), (0, 0, 0, 1)))
    for hops, shares in wanted:
        settings = world_settings(None, None, hops, 0)
        assert (settings.hops, settings.p_comparison, settings.p_yes_no) == (shares, 0, 0)
    retriever = WordRetriever()
    for query in ("", " \n\t "):
        assert searches(retriever).find((query,)).ids == ()
    assert retriever.asked == []


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


QUESTION = "Who is the mayor of the town where Ada Moor was born?"


def test_evidence_is_worth_alpha_and_coverage_is_a_share():
    assert first_occurrence(RetrievalState(0), alpha=0.5) == 0.0
    assert first_occurrence(RetrievalState(0, answer_turn=3), alpha=0.5) == 0.5
    assert supporting_coverage(RetrievalState(0, found=("p1",)), ("p0", "p1", "p2", "p3")) == 0.25
    assert supporting_coverage(RetrievalState(0), ()) == 0.0
    # "is", "the" and "of" are stop words; Porter's stems.
    assert words("The mayors of towns, singing") == {"mayor", "town", "sing"}


@pytest.mark.parametrize(
    ("query", "new", "read", "score"),
    [
        # The question has 7 words without stop words: who, mayor, town, where, ada, moor, born. Two of them match.
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
