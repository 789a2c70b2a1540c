"""Where questions and passages come from: a generated world, files, or objects of one's own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym import ConfigError
from tsr_gym.optional import load
from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever
from tsr_gym_envs.retrieval_qa.contract import Question, Retriever
from tsr_gym_envs.retrieval_qa.questions import QuestionSet, question_set, read_questions
from tsr_gym_envs.retrieval_qa.world import WorldSettings, default_world

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
