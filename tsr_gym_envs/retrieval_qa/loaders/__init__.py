"""Loaders: questions, and the passages that come with them, from the files in which data sets are published.

A file is read whole or not at all: one malformed record is an InvalidCorpus that names file and line, or record.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tsr_gym.errors import ConfigError, InvalidCorpus
from tsr_gym_envs.retrieval_qa.loaders.carried import articles_of, context_of, metadata_of, paragraphs_of, passage_id
from tsr_gym_envs.retrieval_qa.loaders.formats import FORMATS, Defaults, detect
from tsr_gym_envs.retrieval_qa.loaders.placed_record import PlacedRecord
from tsr_gym_envs.retrieval_qa.loaders.records import Records, read_records
from tsr_gym_envs.retrieval_qa.question import Question

__all__ = ["FORMATS", "load_questions", "passages_of"]


def load_questions(
    path: str | Path, format: str | None = None, *, data_source: str | None = None, split: str = ""
) -> tuple[Question, ...]:
    """Return the questions of a file, in their order.

    Args:
        path: A file as published (or your own in the schema of `formats.search_r1`).
        format: A name of `FORMATS`; None to tell by the first record.
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
    found: dict[tuple[str, str], tuple[Question, str]] = {}
    for row in records.rows:
        for question in FORMATS[name].questions(row, defaults):
            if question.group in found:
                raise InvalidCorpus(
                    f"{row.place}: wanted ids that are unique within a data source, got {question.id!r} of "
                    f"{question.data_source!r} again, which is also in {found[question.group][1]}"
                )
            found[question.group] = question, row.place
    if not found:
        raise InvalidCorpus(f"{path}: wanted at least one question that can be answered, got none")
    return tuple(question for question, _ in found.values())


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
