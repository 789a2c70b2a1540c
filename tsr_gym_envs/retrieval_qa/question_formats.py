"""Files of questions: records as JSON lines, JSON, CSV, TSV or parquet, and the published formats of question sets.

Every field is checked when it is read; an error names file, line or record, and key.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.errors import InvalidCorpus
from tsr_gym.records import MAGIC, read_parquet
from tsr_gym_envs.retrieval_qa.contract import Question


class PlacedRecord(NamedTuple):
    """A record and where it stands.

    Attributes:
        place: File and line, such as ``"dev.jsonl:12"``, or file and record.
        number: Its place among the records, from 0.
        fields: What it holds.
    """

    place: str
    number: int
    fields: Mapping[str, Any]

    def fault(self, wanted: str, got: object) -> InvalidCorpus:
        """Return the error that names this record."""
        return InvalidCorpus(f"{self.place}: wanted {wanted}, got {shown(got)}")

    def value(self, key: str) -> Any:
        """Return a field that must be there."""
        if key not in self.fields:
            raise self.fault(f"the key {key!r}", sorted(map(str, self.fields)))
        return self.fields[key]

    def text(self, key: str) -> str:
        """Return a field that is a text with something in it."""
        value = self.value(key)
        if not isinstance(value, str) or not value.strip():
            raise self.fault(f"a text under {key!r}", value)
        return self.whole(key, value)

    def whole(self, key: str, text: str) -> str:
        """Return the text of a key; half a character, which JSON can spell and no file holds, is refused."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise self.fault(f"a text without half a character under {key!r}", text) from error
        return text

    def name(self, key: str) -> str:
        """Return a field that is a text or a whole number, as text."""
        value = self.value(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return self.text(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a field that is a text or a list of at least one, each once, in their order."""
        value = self.value(key)
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, Sequence) or not all(isinstance(text, str) for text in listed):
            raise self.fault(f"texts under {key!r}", value)
        texts = tuple(dict.fromkeys(self.whole(key, text) for text in listed if text.strip()))
        if not texts:
            raise self.fault(f"at least one text under {key!r}", value)
        return texts

    def rows(self, key: str) -> list["PlacedRecord"]:
        """Return a field that is a list of records."""
        value = self.value(key)
        if not isinstance(value, Sequence) or not all(isinstance(entry, Mapping) for entry in value):
            raise self.fault(f"a list of records under {key!r}", value)
        return [PlacedRecord(f"{self.place}, {key}[{number}]", number, entry) for number, entry in enumerate(value)]

    def part(self, key: str) -> "PlacedRecord":
        """Return a field that is a record."""
        value = self.value(key)
        if not isinstance(value, Mapping):
            raise self.fault(f"a record under {key!r}", value)
        return PlacedRecord(f"{self.place}, {key}", 0, value)

    def tuples(self, key: str, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """Return a field that is a list of lists, such as pairs or triples, or the same as columns under names.

        HotpotQA writes ``[["Title", 0], ...]``; Hugging Face's copies, and FlashRAG's, ``{"title": ["Title", ...],
        "sent_id": [0, ...]}``.
        """
        value = self.value(key)
        if isinstance(value, Mapping):
            columns: list[Any] = [value.get(name) for name in names]
            lengths = {len(column) if isinstance(column, list) else -1 for column in columns}
            value = list(zip(*columns, strict=True)) if len(lengths) == 1 and -1 not in lengths else None
        if not isinstance(value, list) or not all(isinstance(e, list | tuple) and len(e) == len(names) for e in value):
            raise self.fault(f"lists of {len(names)} ({', '.join(names)}) under {key!r}", self.fields[key])
        return [tuple(entry) for entry in value]


def shown(value: object) -> str:
    """Return a value as an error shows it, cut off where it is long."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


# Keys under which whole JSON documents keep their records: SQuAD's, TriviaQA's.
LISTS = ("data", "Data")


class Records(NamedTuple):
    """The records of a file.

    Attributes:
        rows: The records, in their order; at least one.
        about: The other keys of a JSON document, next to its records.
    """

    rows: list[PlacedRecord]
    about: dict[str, Any]


def read_records(path: Path) -> Records:
    """Return the records of a file; its content decides how it is read, not its name.

    Raises:
        InvalidCorpus: The file is missing, damaged or without records.
        MissingExtra: It is a parquet file, and pyarrow is not installed.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidCorpus(f"wanted a file of questions, got {path} ({error.strerror})") from error
    if content[:4] == MAGIC:
        records = Records(_parquet(path), {})
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise InvalidCorpus(f"{path}:{line}: wanted UTF-8, got {error.reason} at byte {error.start}") from error
        records = _json(path, text) if text.lstrip()[:1] in ("{", "[") else Records(_table(path, text), {})
    if not records.rows:
        raise InvalidCorpus(f"{path}: wanted at least one question, got none")
    return records


def _json(path: Path, text: str) -> Records:
    """Return the records of JSON lines where the first line is a record by itself, else those of one document."""
    first = text.lstrip().partition("\n")[0]
    try:
        opening = json.loads(first)
    except (ValueError, RecursionError):
        opening = None
    if isinstance(opening, dict) and not any(isinstance(opening.get(key), list) for key in LISTS):
        return Records(_lines(path, text), {})
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _broken(path, text, error) from error
    return _document(path, document)


def _document(path: Path, document: Any) -> Records:
    about: dict[str, Any] = {}
    if isinstance(document, dict):
        key = next((key for key in LISTS if isinstance(document.get(key), list)), None)
        if key is None:
            raise InvalidCorpus(
                f"{path}: wanted a list of records, or one under {LISTS}, got keys {shown(list(document))}"
            )
        about = {name: value for name, value in document.items() if name != key}
        document = document[key]
    return Records([_row(f"{path}, record {n + 1}", n, entry) for n, entry in enumerate(document)], about)


def _broken(path: Path, text: str, error: Exception) -> InvalidCorpus:
    line = error.lineno if isinstance(error, json.JSONDecodeError) else text.count("\n") + 1
    return InvalidCorpus(f"{path}:{line}: wanted JSON, got {error}")


def _lines(path: Path, text: str) -> list[PlacedRecord]:
    rows: list[PlacedRecord] = []
    # Not splitlines(): JSON may hold other line ends inside its texts.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidCorpus(f"{path}:{number}: wanted a JSON record, got {shown(line)} ({error})") from error
        rows.append(_row(f"{path}:{number}", len(rows), entry))
    return rows


def _row(place: str, number: int, entry: Any) -> PlacedRecord:
    if not isinstance(entry, dict):
        raise InvalidCorpus(f"{place}: wanted a record, got {shown(entry)}")
    return PlacedRecord(place, number, entry)


def _table(path: Path, text: str) -> list[PlacedRecord]:
    header = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if "\t" in header else ",", strict=True)
    rows: list[PlacedRecord] = []
    names: list[str] = []
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise InvalidCorpus(f"{path}:{line}: wanted a table row, got {error}") from error
        if cells is None:
            return rows
        if not names:
            names = cells
        elif len(cells) == len(names):
            rows.append(PlacedRecord(f"{path}:{line}", len(rows), dict(zip(names, cells, strict=True))))
        elif cells:
            raise InvalidCorpus(f"{path}:{line}: wanted {len(names)} columns ({', '.join(names)}), got {len(cells)}")


def _parquet(path: Path) -> list[PlacedRecord]:
    entries = read_parquet(path, error=InvalidCorpus)
    return [PlacedRecord(f"{path}, record {n + 1}", n, entry) for n, entry in enumerate(entries)]


def passage_id(title: str, text: str) -> str:
    """Return the id of a passage: the same wherever title and text are the same."""
    return blake2b(f"{title}\0{text}".encode(), digest_size=8).hexdigest()


def context_of(row: PlacedRecord) -> Iterator[tuple[str, str]]:
    """Yield title and text of the paragraphs of a HotpotQA or 2WikiMultihopQA record."""
    for title, sentences in row.tuples("context", ("title", "sentences")):
        if not isinstance(title, str) or not isinstance(sentences, list):
            raise row.fault("pairs of a title and its sentences under 'context'", [title, sentences])
        text = " ".join(str(sentence).strip() for sentence in sentences)
        yield row.whole("context", title), row.whole("context", text)


def supporting_titles(row: PlacedRecord) -> tuple[str, ...]:
    """Return the titles of the supporting paragraphs of such a record, each once."""
    facts = row.tuples("supporting_facts", ("title", "sent_id"))
    if not all(isinstance(title, str) for title, _ in facts):
        raise row.fault("pairs of a title and a sentence's number under 'supporting_facts'", facts)
    return tuple(dict.fromkeys(title for title, _ in facts))


def supporting_of(row: PlacedRecord) -> tuple[str, ...]:
    """Return the ids of the supporting paragraphs of such a record; () where it does not carry all of them."""
    wanted = supporting_titles(row)
    ids = {title: passage_id(title, text) for title, text in context_of(row)}
    return tuple(ids[title] for title in wanted) if ids.keys() >= set(wanted) else ()


def paragraphs_of(row: PlacedRecord) -> Iterator[tuple[str, str, bool]]:
    """Yield title, text and whether it supports the answer of the paragraphs of a MuSiQue record."""
    for paragraph in row.rows("paragraphs"):
        is_supporting = paragraph.value("is_supporting")
        if not isinstance(is_supporting, bool):
            raise paragraph.fault("true or false under 'is_supporting'", is_supporting)
        yield paragraph.text("title"), paragraph.text("paragraph_text"), is_supporting


def metadata_of(row: PlacedRecord) -> Iterator[tuple[str, str]]:
    """Yield title and text of the paragraphs that FlashRAG keeps in the metadata of HotpotQA and 2WikiMultihopQA."""
    if row.fields.get("metadata") and "context" in row.part("metadata").fields:
        yield from context_of(row.part("metadata"))


def articles_of(row: PlacedRecord) -> Iterator[tuple[str, str]]:
    """Yield title and text of the paragraphs of a SQuAD article."""
    title = row.text("title")
    for paragraph in row.rows("paragraphs"):
        yield title, paragraph.text("context")


EVIDENCE = ("fact", "relation", "entity")
_HOPS = re.compile(r"(\d)hop")


class Defaults(NamedTuple):
    """The values of fields that a record lacks."""

    data_source: str
    split: str


def search_r1(row: PlacedRecord, defaults: Defaults) -> Iterator[Question]:
    """Yield the question of a FlashRAG or Search-R1 line, or of your own in that schema.

    ``id``, ``question``, ``golden_answers``; if there, ``data_source``, ``split`` and in ``metadata`` ``supporting``
    (or, as FlashRAG, HotpotQA's ``supporting_facts`` and ``context``), ``hops`` and ``decomposition`` (questions and
    answers) or ``evidences`` (triples).
    """
    metadata = row.part("metadata") if row.fields.get("metadata") else PlacedRecord(row.place, 0, {})
    steps: tuple[tuple[str, str], ...] = ()
    if metadata.fields.get("decomposition"):
        steps = _decomposition(metadata.rows("decomposition"))
    elif metadata.fields.get("evidences"):
        steps = _evidences(metadata)
    supporting = metadata.texts("supporting") if metadata.fields.get("supporting") else ()
    if not supporting and {"supporting_facts", "context"} <= metadata.fields.keys():
        supporting = supporting_of(metadata)
    hops = metadata.fields.get("hops")
    yield Question(
        row.name("id"),
        _given(row, "data_source", defaults.data_source),
        row.text("question"),
        row.texts("golden_answers"),
        supporting,
        _given(row, "split", defaults.split),
        hops if isinstance(hops, int) else len(supporting) or None,
        steps,
    )


def search_r1_rows(row: PlacedRecord, defaults: Defaults) -> Iterator[Question]:
    """Yield the question of a row of Search-R1's parquet files (prompt, reward_model, extra_info).

    Where there is no column ``question``, it is what follows ``Question:`` in the last message of the prompt; where
    there is no column ``id``, split and index of ``extra_info`` make one.
    """
    extra = row.part("extra_info")
    if row.fields.get("question"):
        question = row.text("question")
    else:
        messages = row.rows("prompt")
        question = messages[-1].text("content").rpartition("Question:")[2].strip() if messages else ""
        if not question or "Question:" not in messages[-1].text("content"):
            raise row.fault("'Question: ...' at the end of the prompt", row.value("prompt"))
    split = _given(extra, "split", defaults.split)
    name = row.name("id") if row.fields.get("id") is not None else f"{split or 'row'}_{extra.name('index')}"
    golds = row.part("reward_model").part("ground_truth").texts("target")
    yield Question(name, row.text("data_source"), question, golds, split=split)


def hotpotqa(row: PlacedRecord, defaults: Defaults) -> Iterator[Question]:
    """Yield the question of a HotpotQA record; two passages must be combined."""
    yield _with_context(row, defaults, hops=2)


def two_wiki(row: PlacedRecord, defaults: Defaults) -> Iterator[Question]:
    """Yield the question of a 2WikiMultihopQA record; its evidence triples are the steps."""
    steps = _evidences(row) if row.fields.get("evidences") else ()
    yield _with_context(row, defaults, hops=len(supporting_titles(row)))._replace(steps=steps)


def musique(row: PlacedRecord, defaults: Defaults) -> Iterator[Question]:
    """Yield the question of a MuSiQue line; none for those that their paragraphs do not answer."""
    if row.fields.get("answerable", True) is False:
        return
    name = row.name("id")
    golds = (row.text("answer"), *(row.texts("answer_aliases") if row.fields.get("answer_aliases") else ()))
    steps = _decomposition(row.rows("question_decomposition"))
    hops = _HOPS.match(name)
    supporting = [passage_id(title, text) for title, text, is_supporting in paragraphs_of(row) if is_supporting]
    yield Question(
        name,
        defaults.data_source,
        row.text("question"),
        tuple(dict.fromkeys(golds)),
        tuple(dict.fromkeys(supporting)),
        defaults.split,
        int(hops[1]) if hops else len(steps),
        steps,
    )


def nq_open(row: PlacedRecord, defaults: Defaults) -> Iterator[Question]:
    """Yield the question of an NQ-open line, which has no id: its number among the questions is one."""
    yield Question(
        str(row.number), defaults.data_source, row.text("question"), row.texts("answer"), split=defaults.split
    )


def triviaqa(row: PlacedRecord, defaults: Defaults) -> Iterator[Question]:
    """Yield the question of a TriviaQA record with all aliases of its answer."""
    answer = row.part("Answer")
    golds = [answer.text("Value")]
    for key in ("Aliases", "NormalizedAliases"):
        golds += answer.texts(key) if answer.fields.get(key) else ()
    yield Question(
        row.name("QuestionId"),
        defaults.data_source,
        row.text("Question"),
        tuple(dict.fromkeys(golds)),
        split=defaults.split,
    )


def popqa(row: PlacedRecord, defaults: Defaults) -> Iterator[Question]:
    """Yield the question of a PopQA row, whose answers are a list written as JSON."""
    listed = row.value("possible_answers")
    if isinstance(listed, str):
        try:
            listed = json.loads(listed)
        except (ValueError, RecursionError) as error:
            raise row.fault("a JSON list under 'possible_answers'", listed) from error
    golds = PlacedRecord(row.place, row.number, {"possible_answers": listed}).texts("possible_answers")
    yield Question(row.name("id"), defaults.data_source, row.text("question"), golds, split=defaults.split)


def bamboogle(row: PlacedRecord, defaults: Defaults) -> Iterator[Question]:
    """Yield the question of a Bamboogle row; two hops, and no id: its number among the questions is one."""
    question, answer = ("Question", "Answer") if "Question" in row.fields else ("question", "answer")
    yield Question(
        str(row.number), defaults.data_source, row.text(question), row.texts(answer), split=defaults.split, hops=2
    )


def squad(row: PlacedRecord, defaults: Defaults) -> Iterator[Question]:
    """Yield the questions of a SQuAD article (v1.1, v2, XQuAD) but those that cannot be answered."""
    title = row.text("title")
    for paragraph in row.rows("paragraphs"):
        supporting = (passage_id(title, paragraph.text("context")),)
        for entry in paragraph.rows("qas"):
            if entry.fields.get("is_impossible") is True:
                continue
            golds = tuple(dict.fromkeys(answer.text("text") for answer in entry.rows("answers")))
            if not golds:
                raise entry.fault("at least one answer under 'answers'", ())
            yield Question(
                entry.name("id"),
                defaults.data_source,
                entry.text("question").strip(),
                golds,
                supporting,
                defaults.split,
                1,
            )


class Format(NamedTuple):
    """A published format: how a record becomes questions, and what its data set is called."""

    questions: Callable[[PlacedRecord, Defaults], Iterable[Question]]
    data_source: str


FORMATS: Mapping[str, Format] = {
    "search-r1": Format(search_r1, ""),
    "search-r1-rows": Format(search_r1_rows, ""),
    "hotpotqa": Format(hotpotqa, "hotpotqa"),
    "2wikimultihopqa": Format(two_wiki, "2wikimultihopqa"),
    "musique": Format(musique, "musique"),
    "nq-open": Format(nq_open, "nq"),
    "triviaqa": Format(triviaqa, "triviaqa"),
    "popqa": Format(popqa, "popqa"),
    "bamboogle": Format(bamboogle, "bamboogle"),
    "squad": Format(squad, "squad"),
}


def detect(row: PlacedRecord) -> str:
    """Return the name of the format that a record is written in.

    Raises:
        InvalidCorpus: It is none of them.
    """
    fields = row.fields
    signs: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("search-r1-rows", ("prompt", "reward_model")),
        ("search-r1", ("question", "golden_answers")),
        ("2wikimultihopqa", ("context", "supporting_facts", "evidences")),
        ("hotpotqa", ("context", "supporting_facts")),
        ("musique", ("paragraphs", "question_decomposition")),
        ("popqa", ("question", "possible_answers")),
        ("triviaqa", ("QuestionId", "Question")),
        ("bamboogle", ("Question", "Answer")),
        ("squad", ("title", "paragraphs")),
    )
    for name, keys in signs:
        if all(key in fields for key in keys):
            return name
    if {"question", "answer"} <= fields.keys():
        return "bamboogle" if isinstance(fields["answer"], str) else "nq-open"
    raise InvalidCorpus(
        f"{row.place}: wanted a record of one of the formats {sorted(FORMATS)}, got the keys {sorted(map(str, fields))}"
    )


def _given(row: PlacedRecord, key: str, otherwise: str) -> str:
    return row.text(key) if row.fields.get(key) else otherwise


def _with_context(row: PlacedRecord, defaults: Defaults, hops: int) -> Question:
    """Return the question of a HotpotQA-like record.

    Its supporting passages are unknown where the record does not carry all of them, as in the full-wiki setting.
    """
    return Question(
        row.name("_id" if "_id" in row.fields else "id"),
        defaults.data_source,
        row.text("question"),
        (row.text("answer"),),
        supporting_of(row),
        defaults.split,
        hops,
    )


def _decomposition(rows: list[PlacedRecord]) -> tuple[tuple[str, str], ...]:
    return tuple((row.text("question"), row.text("answer")) for row in rows)


def _evidences(row: PlacedRecord) -> tuple[tuple[str, str], ...]:
    """Return a record's triples as steps: subject and relation are searched for, the object is found.

    A subject that an earlier step finds is written as ``#1``, ``#2``, ..., as MuSiQue does.
    """
    steps: list[tuple[str, str]] = []
    for triple in row.tuples("evidences", EVIDENCE):
        subject, relation, answer = (row.whole("evidences", str(part)) for part in triple)
        earlier = [
            f"#{number}" for number, (_, earlier_answer) in enumerate(steps, start=1) if earlier_answer == subject
        ]
        steps.append((f"{earlier[0] if earlier else subject} {relation}", answer))
    return tuple(steps)
