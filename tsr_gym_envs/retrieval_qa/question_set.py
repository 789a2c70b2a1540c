"""QuestionSet: the questions of an environment, found by number, by name and by split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tsr_gym import ConfigError, InvalidCorpus
from tsr_gym_envs.retrieval_qa.loaders import load_questions
from tsr_gym_envs.retrieval_qa.question import Question
from tsr_gym_envs.settings import SPLITS, in_split

# What data sets call their splits, and what this project does.
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
            ConfigError: There is none, or several.
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
    """Return whether a question is of a split: as published, or by its name where the data set does not say."""
    published = PUBLISHED_SPLITS.get(question.split)
    if split == "all" or published is not None:
        return split in ("all", published)
    return in_split("\0".join(question.group).encode("utf-8", "backslashreplace"), split)
