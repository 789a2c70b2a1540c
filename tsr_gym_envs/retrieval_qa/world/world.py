"""World: an invented encyclopaedia with questions, generated from a seed and equal on every machine.

Every answer follows from facts that the passages state; `inquiry` lists the conditions that a question must meet.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from tsr_gym.files import cache_home, first_use, write_whole
from tsr_gym.seeds import derive_seed
from tsr_gym_envs.retrieval_qa.contract import Passage, Question
from tsr_gym_envs.retrieval_qa.world.facts import Form, Knowledge
from tsr_gym_envs.retrieval_qa.world.inquiry import inquire
from tsr_gym_envs.retrieval_qa.world.populate import populate
from tsr_gym_envs.retrieval_qa.world.sentences import overviews, passage, title
from tsr_gym_envs.retrieval_qa.world.settings import WorldSettings

CORPUS, QUESTIONS = "corpus.jsonl", "questions.jsonl"
# Counts up when the same settings give another world.
VERSION = 1


@dataclass(frozen=True, slots=True)
class World:
    """A generated world.

    Attributes:
        settings: What it was generated from.
        passages: The encyclopaedia; a passage's id is its place.
        questions: The questions of all splits.
        knowledge: What is true.
        forms: What each question asks, apart from its words.
        pages: Id of each entity's passage.
    """

    settings: WorldSettings
    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]
    knowledge: Knowledge
    forms: tuple[Form, ...]
    pages: tuple[str, ...]


def generate_world(settings: WorldSettings | None = None, /, **changes: Any) -> World:
    """Return the world of some settings.

    Args:
        settings: Which world; the default settings' if None.
        changes: Fields of `WorldSettings` that differ from it.

    Raises:
        ConfigError: A setting is impossible.
        GenerationFailed: The world is too small for so many questions.
    """
    settings = replace(settings or WorldSettings(), **changes)
    knowledge = populate(settings)
    rng = np.random.default_rng(derive_seed(settings.seed, "retrieval world", "passages"))
    written = [(title(entity), passage(entity, knowledge, settings.p_backlink, rng)) for entity in knowledge.entities]
    written += overviews(knowledge, round(settings.overviews * len(written) / 100), rng)
    # Shuffled, so that neither ids nor equal scores reveal the kind of a passage.
    places = rng.permutation(len(written))
    order = np.argsort(places)
    passages = tuple(Passage(str(place), *written[number]) for place, number in enumerate(order))
    pages = tuple(str(place) for place in places[: len(knowledge.entities)])
    texts = [passages[int(page)].contents for page in pages]
    inquiries = inquire(settings, knowledge, texts, pages)
    return World(
        settings=settings,
        passages=passages,
        questions=tuple(inquiry.question for inquiry in inquiries),
        knowledge=knowledge,
        forms=tuple(inquiry.form for inquiry in inquiries),
        pages=pages,
    )


def write_world(world: World, out: str | Path) -> Path:
    """Write ``corpus.jsonl`` (Search-R1's schema) and ``questions.jsonl`` into a folder, and return it.

    The folder appears when both files are complete; one that was there before is replaced.
    """
    write_whole(Path(out), QUESTIONS, partial(_fill, world))
    return Path(out)


def default_world(settings: WorldSettings | None = None) -> Path:
    """Return the folder of a world in the cache, which is generated at first use within a few seconds.

    Args:
        settings: Which world; the default settings' if None.
    """
    settings = settings or WorldSettings()
    key = blake2b(json.dumps([VERSION, asdict(settings)]).encode(), digest_size=8).hexdigest()
    folder = cache_home() / "retrieval" / "worlds" / f"seed-{settings.seed}-{key}"
    return first_use(folder, QUESTIONS, lambda partial: _fill(generate_world(settings), partial))


def _fill(world: World, folder: Path) -> None:
    _write(folder / CORPUS, ({"id": passage.id, "contents": passage.contents} for passage in world.passages))
    _write(folder / QUESTIONS, map(_row, world.questions))


def _row(question: Question) -> dict[str, Any]:
    return {
        "id": question.id,
        "data_source": question.data_source,
        "split": question.split,
        "question": question.question,
        "golden_answers": list(question.golden_answers),
        "metadata": {
            "supporting": list(question.supporting),
            "hops": question.hops,
            "decomposition": [{"question": query, "answer": answer} for query, answer in question.steps],
        },
    }


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
