"""Files of questions: every published format by hand-written records, and damaged or hostile records."""

import copy
import json
import re
from collections import Counter

import pyarrow
import pytest
from pyarrow import parquet

from tsr_gym import ConfigError, InvalidCorpus
from tsr_gym_envs.retrieval_qa.contract import Question
from tsr_gym_envs.retrieval_qa.questions import FORMATS, load_questions, passages_of

FLASHRAG = [
    {"id": "test_0", "question": "who wrote it", "golden_answers": ["Ann Lee", "A. Lee", "Ann Lee"]},
    {"id": "test_1", "question": "when was it written", "golden_answers": ["1931"], "metadata": {}},
]
STEPS = (("Who wrote It?", "Ann Lee"), ("Where was #1 born?", "Velden"))
DECOMPOSITION = [{"question": question, "answer": answer} for question, answer in STEPS]
OWN = {
    **{"id": "m-1", "data_source": "mine", "split": "dev", "question": "Where was the author of It born?"},
    **{"golden_answers": ["Velden"], "metadata": {"supporting": ["7", "9"], "hops": 2, "decomposition": DECOMPOSITION}},
}
EXAMPLE = "Answer the question. For example, <answer> Beijing </answer>. Question: who wrote it?\n"
SEARCH_R1_ROW = {
    **{"data_source": "nq", "prompt": [{"role": "user", "content": EXAMPLE}], "ability": "fact-reasoning"},
    "reward_model": {"style": "rule", "ground_truth": {"target": ["Ann Lee", "A. Lee"]}},
    "extra_info": {"split": "train", "index": 3},
}
CONTEXT = [
    ["It (novel)", ["It is a novel.", " Ann Lee wrote it."]],
    ["Ann Lee", ["Ann Lee was born in Velden."]],
    ["Karst", ["Karst is a town."]],
]
HOTPOT = {
    **{"_id": "5a7a06935542990198eaf050", "question": "Where was the author of It born?", "answer": "Velden"},
    **{"supporting_facts": [["It (novel)", 1], ["Ann Lee", 0], ["It (novel)", 0]], "context": CONTEXT},
    **{"type": "bridge", "level": "hard"},
}
EVIDENCES = [["It (novel)", "author", "Ann Lee"], ["Ann Lee", "place of birth", "Velden"]]
TWO_WIKI = {**HOTPOT, "_id": "13f5ad2c088c11ebbd6fac1f6bf848b6", "type": "compositional", "evidences": EVIDENCES}
MUSIQUE = {
    "id": "2hop__482757_12019",
    "paragraphs": [
        {"idx": 0, "title": "Karst", "paragraph_text": "Karst is a town.", "is_supporting": False},
        {"idx": 1, "title": "Ann Lee", "paragraph_text": "Ann Lee was born in Velden.", "is_supporting": True},
        {"idx": 2, "title": "It", "paragraph_text": "It is by Ann Lee.", "is_supporting": True},
    ],
    "question": "Where was the author of It born?",
    "question_decomposition": [
        {"id": 482757, "question": "Who wrote It?", "answer": "Ann Lee", "paragraph_support_idx": 2},
        {"id": 12019, "question": "Where was #1 born?", "answer": "Velden", "paragraph_support_idx": 1},
    ],
    "answer": "Velden",
    "answer_aliases": ["Velden town"],
    "answerable": True,
}
TRIVIA_ANSWER = {
    **{"Aliases": ["Sunset Blvd", "Sunset Boulevard"], "NormalizedAliases": ["sunset blvd", "sunset boulevard"]},
    **{"NormalizedValue": "sunset boulevard", "Type": "WikipediaEntity", "Value": "Sunset Boulevard"},
}
TRIVIA_ROW = {"Answer": TRIVIA_ANSWER, "EntityPages": [], "Question": "Which street is it?", "QuestionId": "tc_1"}


TRIVIA_ROW |= {"QuestionSource": "http://example.org/", "SearchResults": []}
TRIVIA = {"Data": [TRIVIA_ROW], "Domain": "unfiltered", "Split": "dev", "VerifiedEval": False, "Version": 1.0}
POPQA = {"id": 4222362, "subj": "Ann Lee", "prop": "occupation", "question": "What is Ann Lee's occupation?"}
POPQA_ANSWERS = ["politician", "political leader"]
SPAN = {"text": "Velden", "answer_start": 20}
SQUAD_QUESTIONS = [
    {"id": "56be85543aeaaa14008c9063", "question": "Where was Ann Lee born? ", "answers": [SPAN, SPAN]},
    {"id": "5ad5", "question": "Where did Ann Lee die?", "answers": [], "plausible_answers": [SPAN]},
]
SQUAD_QUESTIONS = [row | {"is_impossible": not row["answers"]} for row in SQUAD_QUESTIONS]
SQUAD_PARAGRAPH = {"context": "Ann Lee was born in Velden.", "qas": SQUAD_QUESTIONS}
SQUAD = {"version": "v2.0", "data": [{"title": "Ann_Lee", "paragraphs": [SQUAD_PARAGRAPH]}]}


def lines(rows):
    return "\n".join(json.dumps(row) for row in rows) + "\n"


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def ids_by_title(path):
    return {row["contents"].partition("\n")[0].strip('"'): row["id"] for row in passages_of(path)}


def test_flashrag_and_your_own_lines_with_evidences_as_steps(tmp_path):
    path = write(tmp_path / "nq.jsonl", lines(FLASHRAG))
    assert load_questions(path) == (
        Question("test_0", "nq", "who wrote it", ("Ann Lee", "A. Lee")),
        Question("test_1", "nq", "when was it written", ("1931",)),
    )
    first = load_questions(path, data_source="mine", split="test")[0]
    assert (first.group, first.split) == (("mine", "test_0"), "test")
    path = write(tmp_path / "own.jsonl", lines([OWN]))
    whole = Question("m-1", "mine", "Where was the author of It born?", ("Velden",), ("7", "9"), "dev", 2, STEPS)
    assert load_questions(path) == (whole,)
    evidences = [["A", "director", "X"], ["B", "director", "Y"], ["X", "born", "1"], ["Y", "born", "2"]]
    row = {**OWN, "metadata": {"supporting": ["1", "2", "3", "4"], "evidences": evidences}}
    (question,) = load_questions(write(tmp_path / "own.jsonl", lines([row])))
    assert question.steps == (("A director", "X"), ("B director", "Y"), ("#1 born", "1"), ("#2 born", "2"))
    assert question.hops == 4


def test_search_r1_rows_of_parquet(tmp_path):
    published = {**SEARCH_R1_ROW, "id": "train_3", "question": "who wrote it", "golden_answers": ["Ann Lee", "A. Lee"]}
    for row, name, text in ((SEARCH_R1_ROW, "train_3", "who wrote it?"), (published, "train_3", "who wrote it")):
        path = tmp_path / "train.parquet"
        parquet.write_table(pyarrow.Table.from_pylist([row]), path)
        assert load_questions(path) == (Question(name, "nq", text, ("Ann Lee", "A. Lee"), split="train"),)
    rows = [SEARCH_R1_ROW, {**SEARCH_R1_ROW, "data_source": "hotpotqa"}]
    found = load_questions(write(tmp_path / "train.jsonl", lines(rows)))
    assert [question.group for question in found] == [("nq", "train_3"), ("hotpotqa", "train_3")]


def test_hotpotqa(tmp_path):
    path = write(tmp_path / "hotpot_dev_distractor_v1.json", [HOTPOT])
    (question,) = load_questions(path, split="dev")
    ids = ids_by_title(path)
    assert question == Question(
        HOTPOT["_id"], "hotpotqa", HOTPOT["question"], ("Velden",), (ids["It (novel)"], ids["Ann Lee"]), "dev", 2
    )
    assert {row["contents"] for row in passages_of(path)} == {
        '"It (novel)"\nIt is a novel. Ann Lee wrote it.',
        '"Ann Lee"\nAnn Lee was born in Velden.',
        '"Karst"\nKarst is a town.',
    }


def columns(pairs, first, second):
    return {first: [pair[0] for pair in pairs], second: [pair[1] for pair in pairs]}


def test_hotpotqa_in_the_columns_of_its_copies(tmp_path):
    expected = load_questions(write(tmp_path / "dev.json", [HOTPOT]))[0]
    known = {
        "type": "bridge",
        "supporting_facts": columns(HOTPOT["supporting_facts"], "title", "sent_id"),
        "context": columns(CONTEXT, "title", "sentences"),
    }
    asked = {"id": HOTPOT["_id"], "question": HOTPOT["question"]}
    hugging_face = lines([{**asked, "answer": "Velden", **known}])
    flashrag = lines([{**asked, "golden_answers": ["Velden"], "metadata": known}])
    for content in (hugging_face, flashrag):
        path = write(tmp_path / "hotpotqa.jsonl", content)
        assert load_questions(path) == (expected,)
        assert ids_by_title(path) == ids_by_title(tmp_path / "dev.json")


def test_two_wiki_and_the_passages_that_a_record_does_not_carry(tmp_path):
    path = write(tmp_path / "dev.json", json.dumps([TWO_WIKI], indent=1))
    (question,) = load_questions(path)
    ids = ids_by_title(path)
    assert question.data_source == "2wikimultihopqa"
    assert question.supporting == (ids["It (novel)"], ids["Ann Lee"])
    assert question.hops == 2
    assert question.steps == (("It (novel) author", "Ann Lee"), ("#1 place of birth", "Velden"))
    (question,) = load_questions(write(tmp_path / "fullwiki.json", [{**HOTPOT, "context": CONTEXT[1:]}]))
    assert question.supporting == ()


def test_musique_without_the_questions_that_their_paragraphs_do_not_answer(tmp_path):
    path = write(tmp_path / "musique_full_v1.0_dev.jsonl", lines([MUSIQUE, {**MUSIQUE, "answerable": False}]))
    (question,) = load_questions(path)
    ids = ids_by_title(path)
    answers, supporting = ("Velden", "Velden town"), (ids["Ann Lee"], ids["It"])
    wanted = ("2hop__482757_12019", "musique", MUSIQUE["question"], answers, supporting, "", 2, STEPS)
    assert question == Question(*wanted)


def test_nq_open_and_triviaqa(tmp_path):
    rows = [{"question": "who wrote it", "answer": ["Ann Lee", "A. Lee"]}, {"question": "when", "answer": ["1931"]}]
    found = load_questions(write(tmp_path / "NQ-open.dev.jsonl", lines(rows)))
    assert [question.group for question in found] == [("nq", "0"), ("nq", "1")]
    assert found[0].golden_answers == ("Ann Lee", "A. Lee")
    for content in (TRIVIA, json.dumps(TRIVIA, indent=4)):
        (question,) = load_questions(write(tmp_path / "unfiltered-web-dev.json", content))
        assert question.group == ("triviaqa", "tc_1")
        assert question.golden_answers == ("Sunset Boulevard", "Sunset Blvd", "sunset blvd", "sunset boulevard")
        assert question.split == "dev"


def test_popqa_as_table_and_as_lines(tmp_path):
    written = json.dumps(POPQA_ANSWERS)
    cells = [*map(str, POPQA.values()), '"' + written.replace('"', '""') + '"']
    table = "\t".join([*POPQA, "possible_answers"]) + "\n" + "\t".join(cells) + "\n"
    rows = lines([{**POPQA, "possible_answers": written}])
    listed = lines([{**POPQA, "possible_answers": POPQA_ANSWERS}])
    for name, content in (("popQA.tsv", table), ("test.jsonl", rows), ("test.jsonl", listed)):
        (question,) = load_questions(write(tmp_path / name, content))
        assert question == Question("4222362", "popqa", POPQA["question"], ("politician", "political leader"))


def test_bamboogle_as_table_and_as_json(tmp_path):
    table = 'Question,Answer\n"Who, of all, wrote it?",Ann Lee\nWhen?,"1931"\n'
    rows = [{"Question": "Who, of all, wrote it?", "Answer": "Ann Lee"}, {"Question": "When?", "Answer": "1931"}]
    lower = [{key.lower(): value for key, value in row.items()} for row in rows]
    for content in (table, rows, lines(rows), lines(lower)):
        found = load_questions(write(tmp_path / "bamboogle", content))
        assert [question.group for question in found] == [("bamboogle", "0"), ("bamboogle", "1")]
        assert [question.golden_answers for question in found] == [("Ann Lee",), ("1931",)]
        assert found[0].question == "Who, of all, wrote it?"


def test_squad_without_the_impossible(tmp_path):
    for content in (SQUAD, json.dumps(SQUAD, indent=2)):
        path = write(tmp_path / "dev-v2.0.json", content)
        (question,) = load_questions(path)
        ((name, contents),) = [(row["id"], row["contents"]) for row in passages_of(path)]
        assert contents == '"Ann_Lee"\nAnn Lee was born in Velden.'
        assert question == Question(
            "56be85543aeaaa14008c9063", "squad", "Where was Ann Lee born?", ("Velden",), (name,), "", 1
        )


def test_a_passage_that_several_questions_carry_is_one_passage_and_some_formats_have_none(tmp_path):
    path = write(tmp_path / "dev.json", [HOTPOT, {**HOTPOT, "_id": "b", "context": CONTEXT[::-1]}])
    assert len(list(passages_of(path))) == 3
    assert len({question.supporting for question in load_questions(path)}) == 1
    with pytest.raises(InvalidCorpus, match=r"carries passages.*got 'nq-open'"):
        list(passages_of(write(tmp_path / "nq.jsonl", lines([{"question": "who", "answer": ["Ann"]}]))))
    assert list(passages_of(write(tmp_path / "nq.jsonl", lines(FLASHRAG)))) == []


def test_every_format_is_attacked():
    assert {name for name, _ in SAMPLES} == set(FORMATS)


def without(row, key):
    return {name: value for name, value in row.items() if name != key}


FAULTS = [
    (lines([FLASHRAG[0], without(FLASHRAG[1], "id")]), r"file:2: wanted the key 'id', got \['golden_answers'"),
    (lines([FLASHRAG[0], {**FLASHRAG[1], "golden_answers": []}]), "file:2: wanted at least one text"),
    (lines([FLASHRAG[0], {**FLASHRAG[1], "golden_answers": 3}]), "file:2: wanted texts under 'golden_answers', got 3"),
    (lines([{**FLASHRAG[0], "question": ""}]), "file:1: wanted a text under 'question', got ''"),
    (lines([FLASHRAG[0]]) + '\n\n{"id": \n', "file:4: wanted a JSON record"),
    (lines([FLASHRAG[0]]) + "[1]\n", r"file:2: wanted a record, got \[1\]"),
    (lines([FLASHRAG[0], FLASHRAG[1], FLASHRAG[0]]), "file:3: wanted ids that are unique.*'test_0'.*file:1"),
    (lines([{**OWN, "metadata": {"decomposition": [{"question": "Who?"}]}}]), r"decomposition\[0\]: .*'answer'"),
    (
        lines([{**OWN, "metadata": {"evidences": [["a", "b"]]}}]),
        r"file:1, metadata: wanted lists of 3 \(fact, relation, entity\) under 'evidences'",
    ),
    (lines([{**OWN, "metadata": "x"}]), "file:1: wanted a record under 'metadata', got 'x'"),
    ([HOTPOT, without(HOTPOT, "answer")], "file, record 2: wanted the key 'answer'"),
    ([HOTPOT, {**HOTPOT, "_id": "b", "context": [["It", "text"]]}], "file, record 2: wanted pairs of a title"),
    ([{**HOTPOT, "supporting_facts": [["It"]]}], r"record 1: .*2 \(title, sent_id\) under 'supporting_facts'"),
    (
        lines([{**MUSIQUE, "paragraphs": [without(MUSIQUE["paragraphs"][0], "title")]}]),
        r"file:1, paragraphs\[0\]: wanted the key 'title'",
    ),
    (
        lines([{**MUSIQUE, "paragraphs": [{**MUSIQUE["paragraphs"][0], "is_supporting": 1}]}]),
        "wanted true or false under 'is_supporting', got 1",
    ),
    ({**TRIVIA, "Data": [without(TRIVIA["Data"][0], "Answer")]}, "file, record 1: wanted the key 'Answer'"),
    (lines([{**POPQA, "possible_answers": "[oops"}]), "file:1: wanted a JSON list under 'possible_answers'"),
    ("Question,Answer\nWho?,Ann,Lee\n", r"file:2: wanted 2 columns \(Question, Answer\), got 3"),
    ('Question,Answer\nWho?,"Ann\n', "file:2: wanted a table row"),
    (lines([{**SEARCH_R1_ROW, "prompt": [{"role": "user", "content": "Who?"}]}]), "file:1: wanted 'Question: ...'"),
    (
        lines([{**SEARCH_R1_ROW, "reward_model": {"ground_truth": {}}}]),
        "file:1, reward_model, ground_truth: .*'target'",
    ),
    (
        json.dumps(SQUAD).replace('"answers": []', '"answers": []').replace("true", "false"),
        r"qas\[1\]: wanted at least one answer",
    ),
    ('[{"a": 1},\n {"b": }]', "file:2: wanted JSON"),
    ({"questions": []}, "wanted a record of one of the formats"),
    (lines([{"text": "?"}]), r"file:1: wanted a record of one of the formats .*got the keys \['text'\]"),
    ("[]", "wanted at least one question, got none"),
]


@pytest.mark.parametrize(("content", "message"), FAULTS, ids=range(len(FAULTS)))
def test_a_malformed_record_is_refused_with_file_and_line(tmp_path, content, message):
    path = write(tmp_path / "file", content)
    with pytest.raises(InvalidCorpus, match=message) as caught:
        load_questions(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path):
    with pytest.raises(InvalidCorpus, match=f"got {re.escape(str(tmp_path / 'no'))}"):
        load_questions(tmp_path / "no")
    (tmp_path / "file").write_bytes(b'{"id": "1"}\n{"id": "\xff"}\n')
    with pytest.raises(InvalidCorpus, match="file:2: wanted UTF-8"):
        load_questions(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"PAR1 but nothing else")
    with pytest.raises(InvalidCorpus, match="wanted a parquet file"):
        load_questions(tmp_path / "file")


def test_a_format_can_be_named_and_byte_order_marks_and_line_ends_do_not_matter(tmp_path):
    path = write(tmp_path / "nq.jsonl", lines(FLASHRAG))
    assert load_questions(path, "search-r1") == load_questions(path)
    with pytest.raises(ConfigError, match=r"wanted format of \['2wikimultihopqa'.*got 'hotpot'"):
        load_questions(path, "hotpot")
    with pytest.raises(InvalidCorpus, match="file:1: wanted the key 'answer'"):
        load_questions(write(tmp_path / "file", lines(FLASHRAG)), "hotpotqa")
    path = tmp_path / "nq.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + lines(FLASHRAG).replace("\n", "\r\n\r\n").encode())
    assert len(load_questions(path)) == 2


def test_the_real_mini_set(shared):
    found = load_questions(shared / "data/retrieval/mini_qa.jsonl")
    corpus = (shared / "data/retrieval/mini_corpus.jsonl").read_text(encoding="utf-8")
    ids = {json.loads(line)["id"] for line in corpus.splitlines()}
    sources = {"squad": 704, "hotpotqa": 483, "musique": 188, "2wikimultihopqa": 88}
    assert Counter(question.data_source for question in found) == sources
    assert all(ids.issuperset(question.supporting) and question.supporting for question in found)
    by_id = {question.id: question for question in found}
    two_wiki = by_id["2wikimultihopqa-0051fad20bde11eba7f7acde48001122"]
    father = ("Karl, Prince of Leiningen father", "Emich, 5th Prince of Leiningen")
    assert two_wiki.steps == (father, ("#1 date of birth", "18 January 1866"))
    assert all(question.steps for question in found if question.data_source in ("musique", "2wikimultihopqa"))
    assert all(question.hops in (2, 3, 4) for question in found if question.data_source == "musique")


FLASHRAG_HOTPOT = {
    **FLASHRAG[0],
    "metadata": {"supporting_facts": HOTPOT["supporting_facts"], "context": HOTPOT["context"]},
}
SAMPLES = [
    ("search-r1", FLASHRAG[0]), ("search-r1", OWN), ("search-r1", FLASHRAG_HOTPOT), ("search-r1-rows", SEARCH_R1_ROW),
    ("hotpotqa", HOTPOT), ("2wikimultihopqa", TWO_WIKI), ("musique", MUSIQUE),
    ("nq-open", {"question": "who wrote it", "answer": ["Ann Lee"]}), ("triviaqa", TRIVIA["Data"][0]),
    ("popqa", {**POPQA, "possible_answers": json.dumps(POPQA_ANSWERS)}),
    ("bamboogle", {"Question": "Who?", "Answer": "Ann Lee"}), ("squad", SQUAD["data"][0]),
]  # fmt: skip
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
        # Every question that was read can be written into a file.
        assert json.dumps(found, ensure_ascii=False).encode()


@pytest.mark.parametrize(("name", "record"), SAMPLES, ids=range(len(SAMPLES)))
def test_no_value_of_a_record_ends_in_another_error(tmp_path, name, record):
    file = tmp_path / "records.jsonl"
    for path in places(record):
        for other in HOSTILE:
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
        {"question": "who\ud800"}, {"id": "\udfff"}, {"golden_answers": ["Ann", "L\ud800e"]}, {"data_source": "\ud800"},
        {"metadata": {"supporting": ["\ud800"]}},
        {"metadata": {"context": [["\ud800", ["text"]]], "supporting_facts": [["\ud800", 0]]}},
        {"metadata": {"context": [["title", ["te\ud800xt"]]], "supporting_facts": [["title", 0]]}},
    ],
)  # fmt: skip
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
