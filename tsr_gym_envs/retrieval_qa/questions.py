"""Questions: read from published files, and kept as a set that is indexed by number, id and split.

A file is read whole or not at all: one malformed record raises InvalidCorpus, which names file and line, or record.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tsr_gym import ConfigError, InvalidCorpus
from tsr_gym_envs.retrieval_qa.contract import Question
from tsr_gym_envs.retrieval_qa.question_formats import (
    FORMATS,
    Defaults,
    articles_of,
    context_of,
    detect,
    metadata_of,
    paragraphs_of,
    passage_id,
)
from tsr_gym_envs.retrieval_qa.question_records import PlacedRecord, Records, read_records
from tsr_gym_envs.settings import SPLITS, in_split

__all__ = ["FORMATS", "load_questions", "passages_of"]


def load_questions(
    path: str | Path, format: str | None = None, *, data_source: str | None = None, split: str = ""
) -> tuple[Question, ...]:
    """Return the questions of a file, in their order.

    Args:
        path: A file as published (or your own in the schema of `question_formats.search_r1`).
        format: A name of `FORMATS`; None to detect it from the first record.
        data_source: What records that do not name their data set get; None for the format's name of it, and for
            ``search-r1`` the file's name without suffix.
        split: What records get that do not name theirs; TriviaQA's files do.

    Raises:
        InvalidCorpus: The file is missing, empty or malformed, or two questions of a data source share an id.
        ConfigError: `format` is unknown.
        MissingExtra: It is a parquet file, and pyarrow is not installed.
    """
    path = Path(path)
    records = read_records(path)
    name = _name(format, records)
    given_split = records.about.get("Split")
    defaults = Defaults(
        data_source or FORMATS[name].data_source or path.stem,
        split or (given_split if isinstance(given_split, str) else ""),
    )
    questions: dict[tuple[str, str], tuple[Question, str]] = {}
    for row in records.rows:
        for question in FORMATS[name].questions(row, defaults):
            if question.group in questions:
                raise InvalidCorpus(
                    f"{row.place}: wanted ids that are unique within a data source, got {question.id!r} of "
                    f"{question.data_source!r} again, which is also in {questions[question.group][1]}"
                )
            questions[question.group] = question, row.place
    if not questions:
        raise InvalidCorpus(f"{path}: wanted at least one question that can be answered, got none")
    return tuple(question for question, _ in questions.values())


def passages_of(path: str | Path, format: str | None = None) -> Iterator[dict[str, str]]:
    """Yield the passages that a file of questions carries, each once, as rows of Search-R1's corpus schema.

    HotpotQA, 2WikiMultihopQA, MuSiQue and SQuAD carry passages; their questions name the supporting ones by these ids.
    So do FlashRAG's copies of the first two.

    Raises:
        InvalidCorpus: The file is malformed, or of a format without passages.
        ConfigError: `format` is unknown.
    """
    records = read_records(Path(path))
    name = _name(format, records)
    if name not in _CARRIED:
        raise InvalidCorpus(f"{path}: wanted a format that carries passages, {sorted(_CARRIED)}, got {name!r}")
    seen: set[str] = set()
    for row in records.rows:
        for title, text in _CARRIED[name](row):
            number = passage_id(title, text)
            if number not in seen:
                seen.add(number)
                yield {"id": number, "contents": f'"{title}"\n{text}'}


def _name(format: str | None, records: Records) -> str:
    if format is None:
        return detect(records.rows[0])
    if format not in FORMATS:
        raise ConfigError(f"wanted format of {sorted(FORMATS)}, got {format!r}")
    return format


def _musique(row: PlacedRecord) -> Iterator[tuple[str, str]]:
    return ((title, text) for title, text, _ in paragraphs_of(row))


_CARRIED: Mapping[str, Callable[[PlacedRecord], Iterable[tuple[str, str]]]] = {
    "hotpotqa": context_of,
    "2wikimultihopqa": context_of,
    "musique": _musique,
    "squad": articles_of,
    "search-r1": metadata_of,
}


# Maps the published names of splits to ours.
PUBLISHED_SPLITS = {"train": "train", "dev": "valid", "valid": "valid", "validation": "valid", "test": "test"}


@dataclass(frozen=True, slots=True, eq=False)
class QuestionSet:
    """Some questions in their order.

    Attributes:
        questions: The questions; a state names one by its place.
        digest: 32 hexadecimal digits over all of them.
        numbers: Places by id; several where data sources share an id.
    """

    questions: tuple[Question, ...]
    digest: str
    numbers: Mapping[str, tuple[int, ...]]

    def of_split(self, split: str) -> tuple[int, ...]:
        """Return the places of a split's questions.

        Raises:
            ConfigError: There is no such split, or no question in it.
        """
        if split not in SPLITS:
            raise ConfigError(f"wanted split of {sorted(SPLITS)}, got {split!r}")
        places = tuple(place for place, question in enumerate(self.questions) if _belongs(question, split))
        if not places:
            raise ConfigError(f"wanted questions of split {split!r}, got none among {len(self.questions)}")
        return places

    def place_of(self, options: Mapping[str, Any]) -> int:
        """Return the place of the question that ``{"question_id": ID}`` names, with ``"data_source"`` if need be.

        Raises:
            ConfigError: No question matches, or several do.
        """
        name, source = str(options.get("question_id")), options.get("data_source")
        places = [
            place
            for place in self.numbers.get(name, ())
            if source is None or self.questions[place].data_source == source
        ]
        if len(places) != 1:
            raise ConfigError(
                f"wanted the id of one question, got {name!r} of data source {source!r}, which {len(places)} have; "
                "reset options are question_id and data_source"
            )
        return places[0]


def question_set(questions: Sequence[Question]) -> QuestionSet:
    """Return questions as a set.

    Raises:
        InvalidCorpus: There is no question, or two of a data source have the same id.
    """
    if not questions:
        raise InvalidCorpus("wanted at least one question, got none")
    numbers: dict[str, tuple[int, ...]] = {}
    groups = set()
    for place, question in enumerate(questions):
        if question.group in groups:
            raise InvalidCorpus(f"wanted ids that differ within a data source, got {question.group} twice")
        groups.add(question.group)
        numbers[question.id] = (*numbers.get(question.id, ()), place)
    digest = blake2b(digest_size=16)
    for question in questions:
        digest.update(repr(question).encode("utf-8", "backslashreplace"))
    return QuestionSet(tuple(questions), digest.hexdigest(), numbers)


def read_questions(path: str | Path) -> QuestionSet:
    """Return the questions of a file; a file that has not changed is read once.

    Raises:
        InvalidCorpus: The file is missing or malformed.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise InvalidCorpus(f"wanted a file of questions, got {path}, which is not there")
    about = path.stat()
    return _read(path, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=4)
def _read(path: Path, size: int, changed: int) -> QuestionSet:
    return question_set(load_questions(path))


def _belongs(question: Question, split: str) -> bool:
    """Return whether a question belongs to a split: the published one, else one by a hash of its name."""
    published = PUBLISHED_SPLITS.get(question.split)
    if split == "all" or published is not None:
        return split in ("all", published)
    return in_split("\0".join(question.group).encode("utf-8", "backslashreplace"), split)
