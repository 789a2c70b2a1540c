"""Question files that mean harm: every value of every format replaced by others, and an error that names the record."""

import copy
import json

import pyarrow
import pytest
from pyarrow import parquet

from tests.tsr_gym_envs.retrieval_qa.test_loaders import (
    FLASHRAG,
    HOTPOT,
    MUSIQUE,
    OWN,
    POPQA,
    POPQA_ANSWERS,
    SEARCH_R1_ROW,
    SQUAD,
    TRIVIA,
    TWO_WIKI,
)
from tsr_gym import InvalidCorpus
from tsr_gym_envs.retrieval_qa.questions import FORMATS, load_questions, passages_of

FLASHRAG_HOTPOT = {
    **FLASHRAG[0],
    "metadata": {"supporting_facts": HOTPOT["supporting_facts"], "context": HOTPOT["context"]},
}
SAMPLES = [
    ("search-r1", FLASHRAG[0]),
    ("search-r1", OWN),
    ("search-r1", FLASHRAG_HOTPOT),
    ("search-r1-rows", SEARCH_R1_ROW),
    ("hotpotqa", HOTPOT),
    ("2wikimultihopqa", TWO_WIKI),
    ("musique", MUSIQUE),
    ("nq-open", {"question": "who wrote it", "answer": ["Ann Lee"]}),
    ("triviaqa", TRIVIA["Data"][0]),
    ("popqa", {**POPQA, "possible_answers": json.dumps(POPQA_ANSWERS)}),
    ("bamboogle", {"Question": "Who?", "Answer": "Ann Lee"}),
    ("squad", SQUAD["data"][0]),
]
# Stands for a number of 5,000 digits, which Python reads and does not write.
LONG = "a number of 5,000 digits"
HOSTILE = (
    None, True, 0, -1, 1.5, 1e300, LONG, "", " ", "\ud800", "\x00", [], [None], [[]], [[None, None]], [["\udfff", 0]],
    [[[], 0]], [[{}, {}]], {}, {"title": 5}, {"title": ["a"], "sent_id": None}, {"title": [[]], "sent_id": [0]},
    {"title": ["a"], "sentences": ["b"]}, {"": {}}, [{}],
)  # fmt: skip


def places(value, path=()):
    """Yield the paths to everything inside a value, itself included."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield from places(part, (*path, key))


def replaced(value, path, other):
    if not path:
        return other
    changed = copy.deepcopy(value)
    part = changed
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = other
    return changed


def written(record):
    return json.dumps(record).replace(f'"{LONG}"', "1" * 5000)


def read_all(path, name):
    """Read questions and passages; an InvalidCorpus that names the file is what may come of it."""
    for read in (load_questions, lambda *arguments: list(passages_of(*arguments))):
        refusal, found = str(path), ()
        try:
            found = read(path, name)
        except InvalidCorpus as error:
            refusal = str(error)
        assert str(path) in refusal
        # Whatever was read can be written into a file.
        assert json.dumps(found, ensure_ascii=False).encode()


def test_every_format_is_attacked():
    assert {name for name, _ in SAMPLES} == set(FORMATS)


@pytest.mark.parametrize(("name", "record"), SAMPLES, ids=range(len(SAMPLES)))
def test_no_value_of_a_record_ends_in_another_error(tmp_path, name, record):
    for number, path in enumerate(places(record)):
        for other in HOSTILE:
            file = tmp_path / f"{number}.jsonl"
            file.write_text(written(replaced(record, path, other)) + "\n")
            read_all(file, name)


@pytest.mark.parametrize("facts", [[[[], 0]], [[{}, 0]], [[5, 0]], [[None, 0]], {"title": [[]], "sent_id": [0]}])
def test_wrong_supporting_facts_are_named(tmp_path, facts):
    file = tmp_path / "hotpot.json"
    file.write_text(json.dumps([HOTPOT, {**HOTPOT, "_id": "b", "supporting_facts": facts}]))
    with pytest.raises(InvalidCorpus, match=r"hotpot\.json, record 2: wanted .* under 'supporting_facts'"):
        load_questions(file)


@pytest.mark.parametrize(
    "change",
    [
        {"question": "who\ud800"},
        {"id": "\udfff"},
        {"golden_answers": ["Ann", "L\ud800e"]},
        {"data_source": "\ud800"},
        {"metadata": {"supporting": ["\ud800"]}},
        {"metadata": {"context": [["\ud800", ["text"]]], "supporting_facts": [["\ud800", 0]]}},
        {"metadata": {"context": [["title", ["te\ud800xt"]]], "supporting_facts": [["title", 0]]}},
    ],
)
def test_half_a_character_is_named(tmp_path, change):
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps(FLASHRAG[1]) + "\n" + json.dumps({**FLASHRAG[0], **change}) + "\n")
    with pytest.raises(InvalidCorpus, match=r"questions\.jsonl:2.*half a character"):
        load_questions(file)


def test_bytes_of_a_parquet_file_that_are_no_text_are_named(tmp_path):
    texts = pyarrow.array([b"who wrote it", b"who \xff it"]).cast(pyarrow.binary())
    # As other writers do it, without looking at the bytes.
    questions = pyarrow.Array.from_buffers(pyarrow.string(), 2, texts.buffers())
    table = pyarrow.table(
        {"id": ["a", "b"], "question": questions, "golden_answers": pyarrow.array([["Ann"], ["Ann"]])}
    )
    parquet.write_table(table, tmp_path / "file.parquet")
    with pytest.raises(InvalidCorpus, match=r"file\.parquet, record 2: wanted UTF-8"):
        load_questions(tmp_path / "file.parquet")
