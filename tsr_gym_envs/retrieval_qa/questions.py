"""Sets of questions, indexed by number, id and split, and the sources of questions and passages.

Sources are a generated world, published files, or objects of the caller. A file is read whole or not at all: one
malformed record raises InvalidCorpus, which names file and line, or record.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym import ConfigError, InvalidCorpus
from tsr_gym.optional import load
from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever
from tsr_gym_envs.retrieval_qa.contract import Question, Retriever
from tsr_gym_envs.retrieval_qa.question_formats import (
    FORMATS,
    Defaults,
    PlacedRecord,
    Records,
    articles_of,
    context_of,
    detect,
    metadata_of,
    paragraphs_of,
    passage_id,
    read_records,
)
from tsr_gym_envs.retrieval_qa.world import WorldSettings, default_world
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


_CARRIED: Mapping[str, Callable[[PlacedRecord], Iterable[tuple[str, str]]]] = {
    "hotpotqa": context_of,
    "2wikimultihopqa": context_of,
    "musique": lambda row: ((title, text) for title, text, _ in paragraphs_of(row)),
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


MAX_HOPS = 4


class Sources(NamedTuple):
    """Questions and what is searched.

    Attributes:
        questions: The questions.
        retriever: The search.
        world: Folder of the generated world; None where something else was given.
        is_default: Whether the world has the default settings.
    """

    questions: QuestionSet
    retriever: Retriever
    world: Path | None = None
    is_default: bool = False


def world_settings(
    entities: int | None, questions: int | None, hops: int | Sequence[int] | None, seed: int
) -> WorldSettings:
    """Return the settings of a generated world; what is None stays as it is by default.

    Args:
        entities: How many entities.
        questions: How many questions.
        hops: Which numbers of hops, equally often, and then no other kinds of questions.
        seed: Of everything.

    Raises:
        ConfigError: A setting is impossible.
    """
    changes: dict[str, Any] = {}
    for name, value in (("num_entities", entities), ("num_questions", questions), ("seed", seed)):
        if value is not None:
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"wanted {name.removeprefix('num_')} as a whole number, got {value!r:.80}")
            changes[name] = value
    if hops is not None:
        wanted = [hops] if isinstance(hops, int) else list(hops) if isinstance(hops, Sequence) else []
        if not wanted or any(hop not in range(1, MAX_HOPS + 1) or isinstance(hop, str) for hop in wanted):
            raise ConfigError(f"wanted hops as numbers from 1 to {MAX_HOPS}, such as [1, 2], got {hops!r:.80}")
        shares = tuple(float(hop in wanted) for hop in range(1, MAX_HOPS + 1))
        changes |= {"hops": shares, "p_comparison": 0.0, "p_yes_no": 0.0}
    return WorldSettings(**changes)


def open_sources(
    questions: str | Path | Sequence[Question] | int | None,
    corpus: str | Path | None,
    retriever: Retriever | str | None,
    *,
    entities: int | None = None,
    hops: int | Sequence[int] | None = None,
    world_seed: int = 0,
) -> Sources:
    """Return the questions and the search that keywords of the environment stand for.

    Raises:
        ConfigError: They do not go together, or are impossible.
        InvalidCorpus: The questions or the corpus are missing or malformed.
        GenerationFailed: The world is too small for so many questions.
    """
    number = questions if isinstance(questions, int) else None
    settings = world_settings(entities, number, hops, world_seed)
    given = None if isinstance(questions, int) else questions
    if given is None and corpus is None and retriever is None:
        world = default_world(settings)
        asked = read_questions(world / "questions.jsonl")
        return Sources(asked, BM25Retriever(world / "corpus.jsonl"), world, settings == WorldSettings())
    if settings != WorldSettings():
        raise ConfigError(
            "entities, hops, world_seed and a number of questions are settings of the generated world: wanted none of "
            "them beside files or a retriever of your own"
        )
    if given is None or (corpus is None and retriever is None):
        missing = "questions" if given is None else "a corpus or a retriever"
        beside = f"the retriever {retriever!r:.80}" if corpus is None else f"the corpus {corpus}"
        beside = beside if given is None else f"the questions {given!s:.80}"
        raise ConfigError(f"wanted {missing} for {beside}; leave out all three for generated ones")
    asked = _questions(given)
    return Sources(asked, _retriever(retriever, corpus))


def _questions(given: str | Path | Sequence[Question]) -> QuestionSet:
    if isinstance(given, str | Path):
        return read_questions(given)
    questions = list(given) if isinstance(given, Sequence) else [None]
    if not all(isinstance(question, Question) for question in questions):
        raise ConfigError(f"wanted questions as a path or as Question objects, got {given!r:.200}")
    return question_set(given)


def _retriever(given: Retriever | str | None, corpus: str | Path | None) -> Retriever:
    if given is None:
        assert corpus is not None
        return BM25Retriever(corpus)
    if not isinstance(given, str):
        return given
    try:
        make_one: Any = load(given)
    except (ValueError, ImportError, KeyError) as error:
        raise ConfigError(f"wanted retriever='package.module:name', got {given!r} ({error})") from error
    engine: Retriever = make_one() if corpus is None else make_one(corpus)
    return engine
