"""Question sets: splits, names and digests."""

import json

import pytest

from tests.tsr_gym_envs.retrieval_qa.fakes import QUESTIONS
from tsr_gym import ConfigError, InvalidCorpus
from tsr_gym_envs.retrieval_qa.contract import Question
from tsr_gym_envs.retrieval_qa.questions import question_set, read_questions


def plain(name, split="", source="s"):
    return Question(name, source, "Who?", ("x",), split=split)


def test_published_splits_are_kept_under_this_projects_names():
    questions = question_set([plain("a", "train"), plain("b", "dev"), plain("c", "validation"), plain("d", "test")])
    assert questions.of_split("all") == (0, 1, 2, 3)
    assert questions.of_split("train") == (0,)
    assert questions.of_split("valid") == (1, 2)
    assert questions.of_split("test") == (3,)


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


def test_a_split_without_questions_is_refused():
    with pytest.raises(ConfigError, match="questions of split 'test', got none among 1"):
        question_set([plain("a", "train")]).of_split("test")
    with pytest.raises(ConfigError, match=r"wanted split of .*got 'dev'"):
        question_set(QUESTIONS).of_split("dev")


def test_a_question_is_found_by_its_id_and_where_need_be_its_source():
    questions = question_set(QUESTIONS)
    assert questions.place_of({"question_id": "q2"}) == 2
    assert questions.place_of({"question_id": "q0", "data_source": "other"}) == 3
    with pytest.raises(ConfigError, match="'q0' of data source None, which 2 have"):
        questions.place_of({"question_id": "q0"})
    with pytest.raises(ConfigError, match="'q9' of data source None, which 0 have"):
        questions.place_of({"question_id": "q9"})
    assert question_set([plain("7")]).place_of({"question_id": 7}) == 0


def test_no_questions_and_equal_names_are_refused():
    with pytest.raises(InvalidCorpus, match="at least one question"):
        question_set([])
    with pytest.raises(InvalidCorpus, match=r"\('s', 'a'\) twice"):
        question_set([plain("a"), plain("a")])


def test_the_digest_covers_every_field_and_the_order():
    first, *rest = QUESTIONS
    digests = {
        question_set(questions).digest
        for questions in (
            QUESTIONS,
            QUESTIONS[:3],
            [*rest, first],
            [first._replace(golden_answers=("x",)), *rest],
            [first._replace(supporting=()), *rest],
            [first._replace(steps=()), *rest],
            [first._replace(question="\ud800"), *rest],
        )
    }
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
