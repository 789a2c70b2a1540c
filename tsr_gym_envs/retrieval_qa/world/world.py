"""World: an invented encyclopaedia with questions, generated from a seed and equal on every machine.

A question is kept only if all of these hold: its facts give exactly one answer; neither the answer nor any step's
answer occurs in it; no supporting passage but the last contains the answer; each fact stands in its own passage; and no
question of another split uses one of its facts or has the same entity as its answer. So no training question asks, at
any hop, for what a test question asks. Dates, numbers, yes and no are not entities and occur in all splits.

A sub-question refers to the answer of an earlier one as ``#1``, ``#2``, ..., as in MuSiQue's decompositions.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tsr_gym.errors import GenerationFailed
from tsr_gym.files import cache_home, first_use, write_whole
from tsr_gym.seeds import derive_seed
from tsr_gym_envs.retrieval_qa.contract import Passage, Question
from tsr_gym_envs.retrieval_qa.grading import contains_answer
from tsr_gym_envs.retrieval_qa.world.facts import Fact, Form, Hop, Knowledge, Solution, solve
from tsr_gym_envs.retrieval_qa.world.populate import populate
from tsr_gym_envs.retrieval_qa.world.sentences import Relation, call, capital, grammar, overviews, passage, title
from tsr_gym_envs.retrieval_qa.world.settings import WorldSettings

T = TypeVar("T")

# How often a walk goes back along a relation where it can, and a yes/no question asks of what is one hop away.
P_BACK, P_ONE_HOP_AWAY = 0.15, 0.5


class Drawing:
    """Draws forms; many of them have no answer or are unfair, and the caller discards those.

    Args:
        settings: How often which form is drawn.
        knowledge: What is true.
        rng: Where forms are drawn from.
    """

    def __init__(self, settings: WorldSettings, knowledge: Knowledge, rng: np.random.Generator) -> None:
        self._settings, self._knowledge, self._rng = settings, knowledge, rng
        self._by_relation: dict[str, list[Fact]] = {}
        for fact in knowledge.facts.values():
            self._by_relation.setdefault(fact.relation, []).append(fact)
        relations = [grammar().relations[name] for name, facts in self._by_relation.items() if len(facts) > 1]
        self._compared = [relation for relation in relations if relation.less]
        self._ordered = [relation for relation in relations if relation.before]
        self._shared = [relation for relation in relations if relation.same]
        # The facts whose object is an entity, by its number.
        self._into: dict[int, list[Fact]] = {}
        for (number, _), facts in knowledge.inverse.items():
            self._into.setdefault(number, []).extend(facts)
        self._p_hops = np.array(settings.hops) / sum(settings.hops)

    def form(self) -> Form | None:
        """Return a form of a random kind; None where the draw led nowhere."""
        settings, rng = self._settings, self._rng
        share = rng.random()
        if share < settings.p_comparison:
            return self._comparison(1 + int(rng.random() < 0.5))
        if share < settings.p_comparison + settings.p_yes_no:
            return self._same() if rng.random() < 0.6 else self._before()
        num_hops = 1 + int(rng.choice(4, p=self._p_hops))
        start = int(rng.integers(len(self._knowledge.entities)))
        hops = self._walk(start, num_hops)
        return None if hops is None else Form("chain", (start,), hops)

    def _walk(self, start: int, num_hops: int) -> tuple[Hop, ...] | None:
        """Return relations that lead away from an entity, to an entity each until the last."""
        hops: list[Hop] = []
        at, visited = start, {start}
        while len(hops) < num_hops:
            is_last = len(hops) == num_hops - 1
            fact, is_inverse = self._next(at, is_last=is_last)
            if fact is None:
                return None
            hops.append(Hop(fact.relation, is_inverse))
            if len(hops) > 1 and hops[-1].relation == hops[-2].relation:
                return None
            end = fact.subject if is_inverse else fact.object
            if not isinstance(end, int):
                break
            if end in visited:
                return None
            visited.add(end)
            at = end
        return tuple(hops)

    def _next(self, at: int, *, is_last: bool) -> tuple[Fact | None, bool]:
        if self._rng.random() < P_BACK:
            backward = [fact for fact in self._into.get(at, ()) if grammar().relations[fact.relation].iask]
            if backward:
                return self._one(backward), True
        forward = self._knowledge.about.get(at, ())
        usable = [fact for fact in forward if is_last or isinstance(fact.object, int)]
        return (self._one(usable) if usable else None), False

    def _comparison(self, num_hops: int) -> Form | None:
        criterion = self._one(self._compared)
        starts = self._two(criterion)
        hops = self._walk(starts[0], num_hops)
        if hops is None or hops[0].relation == criterion.name:
            return None
        return Form("comparison", starts, hops, criterion.name, bool(self._rng.random() < 0.5))

    def _before(self) -> Form:
        criterion = self._one(self._ordered)
        return Form("before", self._two(criterion), (), criterion.name)

    def _same(self) -> Form | None:
        """Return a form whose answer is yes about as often as no."""
        relation = self._one(self._shared)
        first = self._one(self._by_relation[relation.name])
        others = self._by_relation[relation.name]
        # Two random facts rarely share their object, so half of the draws are made among those that do.
        if self._rng.random() < 0.5:
            others = [fact for fact in others if fact.object == first.object]
        second = self._one(others)
        if first.subject == second.subject:
            return None
        hop = Hop(relation.name)
        if self._rng.random() >= P_ONE_HOP_AWAY:
            return Form("same", (first.subject, second.subject), (hop,))
        return self._one_hop_away(first.subject, second.subject, hop)

    def _one_hop_away(self, first: int, second: int, hop: Hop) -> Form | None:
        """Return a form about two entities that lead to the two given ones."""
        into = self._into.get(first, ())
        ways = {fact.relation: fact for fact in self._into.get(second, ())}
        shared = [fact for fact in into if fact.relation in ways and fact.relation != hop.relation]
        if not shared:
            return None
        fact = self._one(shared)
        return Form("same", (fact.subject, ways[fact.relation].subject), (Hop(fact.relation), hop))

    def _two(self, criterion: Relation) -> tuple[int, int]:
        facts = self._by_relation[criterion.name]
        first, second = self._rng.choice(len(facts), 2, replace=False)
        return facts[first].subject, facts[second].subject

    def _one(self, choices: Sequence[T]) -> T:
        return choices[int(self._rng.integers(len(choices)))]


# A comparison's frames: the winner as it is spoken of, and what stands before the question.
FRAMES = (
    ("the one {that} {more}", "Of {a} and {b}, "),
    ("the one {that} {more}", "Compare {a} with {b}: "),
    ("the one {that} {more}", "Consider {a} and {b}: "),
    ("whichever of {a} and {b} {more}", ""),
)


def word(
    form: Form, solution: Solution, knowledge: Knowledge, p_alias: float, rng: np.random.Generator
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return a question, and its sub-questions with their answers as the passages write them."""

    def pick(patterns: Sequence[str]) -> str:
        return patterns[int(rng.integers(len(patterns)))]

    calls = [_call(start, knowledge, p_alias, rng) for start in form.starts]
    if form.kind == "chain":
        text = _ask(form.hops, calls[0], pick)
        return capital(text), tuple(_steps(form.hops, solution.ways[0], calls[0], 0, knowledge))
    first, second = solution.ways[:2]
    if form.kind == "same":
        *way, last = form.hops
        phrases = [_noun(way, name, pick) for name in calls]
        text = pick(grammar().relations[last.relation].same).format(a=phrases[0], b=phrases[1])
        steps = _steps(form.hops, first, calls[0], 0, knowledge)
        return text, tuple(steps + _steps(form.hops, second, calls[1], len(steps), knowledge))
    criterion = grammar().relations[form.criterion]
    compared = (Hop(form.criterion),)
    steps = _steps(compared, first, calls[0], 0, knowledge) + _steps(compared, second, calls[1], 1, knowledge)
    if form.kind == "before":
        return pick(criterion.before).format(a=calls[0], b=calls[1]), tuple(steps)
    winner, lead = FRAMES[int(rng.integers(len(FRAMES)))]
    slots = {
        "a": calls[0],
        "b": calls[1],
        "that": "who" if criterion.subject == "person" else "that",
        "more": criterion.more if form.wants_more else criterion.less,
    }
    text = _ask(form.hops, winner.format(**slots), pick)
    if lead:
        text = text[0].lower() + text[1:]
    start = calls[form.starts.index(solution.winner)]
    steps += _steps(form.hops, solution.ways[2], start, 2, knowledge)
    return capital(lead.format(**slots) + text), tuple(steps)


def _call(number: int, knowledge: Knowledge, p_alias: float, rng: np.random.Generator) -> str:
    entity = knowledge.entities[number]
    return call(entity, entity.alias if entity.alias and rng.random() < p_alias else entity.name)


def _ask(hops: Sequence[Hop], start: str, pick: Callable[[Sequence[str]], str]) -> str:
    *way, last = hops
    relation = grammar().relations[last.relation]
    return _fill(relation.iask if last.is_inverse else relation.ask, _noun(way, start, pick), start, pick)


def _noun(hops: Sequence[Hop], start: str, pick: Callable[[Sequence[str]], str]) -> str:
    phrase = start
    for hop in hops:
        relation = grammar().relations[hop.relation]
        phrase = _fill(relation.inoun if hop.is_inverse else relation.noun, phrase, start, pick)
    return phrase


def _fill(patterns: Sequence[str], phrase: str, start: str, pick: Callable[[Sequence[str]], str]) -> str:
    """Return a pattern about a phrase; one that ends with it where it is a phrase within a phrase, for readability."""
    if phrase != start:
        patterns = [pattern for pattern in patterns if pattern.rstrip("?").endswith("{x}")] or patterns
    return pick(patterns).format(x=phrase)


def _steps(
    hops: Sequence[Hop], way: Sequence[Fact], start: str, before: int, knowledge: Knowledge
) -> list[tuple[str, str]]:
    """Return a query and its answer per hop; `before` queries stand before these."""
    steps = []
    for number, (hop, fact) in enumerate(zip(hops, way, strict=True)):
        about = f"#{before + number}" if number else start
        answer = knowledge.entities[fact.subject].name if hop.is_inverse else fact.text
        relation = grammar().relations[hop.relation]
        steps.append((f"{about} {relation.ifind if hop.is_inverse else relation.find}", answer))
    return steps


DATA_SOURCE = "tsr-world"
SPLITS = ("train", "valid", "test")
# Draws without success, one after the other, before generation fails; a few are normal.
MAX_DRAWS = 2000


class Inquiry(NamedTuple):
    """A question and the form behind it."""

    question: Question
    form: Form


def inquire(
    settings: WorldSettings, knowledge: Knowledge, texts: Sequence[str], ids: Sequence[str]
) -> tuple[Inquiry, ...]:
    """Return the questions of a world.

    Args:
        settings: How many, and of which forms.
        knowledge: What is true.
        texts: Contents of the entities' passages, by entity.
        ids: Ids of these passages, by entity.

    Raises:
        GenerationFailed: The world is too small for so many questions.
    """
    inquirer = _Inquirer(settings, knowledge, texts, ids)
    inquiries: list[Inquiry] = []
    misses = 0
    while len(inquiries) < settings.num_questions:
        inquiry = inquirer.draw(len(inquiries))
        if inquiry is not None:
            inquiries.append(inquiry)
        misses = 0 if inquiry is not None else misses + 1
        if misses == MAX_DRAWS:
            raise GenerationFailed(
                f"found {len(inquiries)} of {settings.num_questions} questions about {settings.num_entities} entities; "
                "ask for fewer questions or more entities"
            )
    return tuple(inquiries)


class _Inquirer:
    """Draws questions and keeps those that are fair and belong to the split whose turn it is."""

    def __init__(self, settings: WorldSettings, knowledge: Knowledge, texts: Sequence[str], ids: Sequence[str]) -> None:
        self._settings, self._knowledge, self._texts, self._ids = settings, knowledge, texts, ids
        self._rng = np.random.default_rng(derive_seed(settings.seed, "retrieval world", "questions"))
        self._drawing = Drawing(settings, knowledge, self._rng)
        self._asked: set[Form] = set()
        # The split of each fact and each answer: that of the question that came first.
        self._owners: dict[tuple[int, str], str] = {}
        self._turns = [split for split, tenths in zip(SPLITS, settings.splits, strict=True) for _ in range(tenths)]

    def draw(self, number: int) -> Inquiry | None:
        """Return a question, or None where the drawn form is unanswerable or unfair."""
        form = self._drawing.form()
        solution = solve(form, self._knowledge) if form and form not in self._asked else None
        if form is None or solution is None or not _is_spread(solution):
            return None
        text, steps = word(form, solution, self._knowledge, self._settings.p_alias, self._rng)
        split = self._turns[number % len(self._turns)]
        if not _is_fair(form, solution, text, steps, self._texts) or not self._claim(split, solution):
            return None
        self._asked.add(form)
        supporting = tuple(dict.fromkeys(self._ids[fact.subject] for fact in solution.facts))
        name = f"{_sort(form)}-{self._settings.seed}-{number:05d}"
        return Inquiry(
            Question(name, DATA_SOURCE, text, solution.answers, supporting, split, len(supporting), steps), form
        )

    def _claim(self, split: str, solution: Solution) -> bool:
        """Return whether a split may have a question, and if so make its facts and its answer the split's own."""
        # The first question that uses a fact or an answer decides its split. Later questions of other splits that need
        # it are discarded, so a test question never asks for anything that a training question revealed.
        keys = [(fact.subject, fact.relation) for fact in solution.facts]
        if solution.answer_entity is not None:
            keys.append((solution.answer_entity, "answer"))
        if any(self._owners.get(key, split) != split for key in keys):
            return False
        self._owners.update(dict.fromkeys(keys, split))
        return True


def _sort(form: Form) -> str:
    return f"{len(form.hops)}hop" if form.kind == "chain" else "comparison" if form.kind == "comparison" else "yesno"


def _is_spread(solution: Solution) -> bool:
    """Return whether each fact has its own passage; the winner of a comparison shares one."""
    subjects = [fact.subject for fact in solution.facts]
    return len(set(subjects)) == len(subjects) - (solution.winner is not None)


def _is_fair(form: Form, solution: Solution, text: str, steps: Sequence[tuple[str, str]], texts: Sequence[str]) -> bool:
    if any(contains_answer(text, answer) for _, answer in steps):
        return False
    # Yes and no are not checked against the passages: no passage states them.
    if form.kind in ("same", "before"):
        return True
    if contains_answer(text, solution.answers):
        return False
    last = solution.facts[-1].subject
    return not any(
        contains_answer(texts[fact.subject], solution.answers) for fact in solution.facts if fact.subject != last
    )


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
    write_whole(Path(out), QUESTIONS, partial(_write_files, world))
    return Path(out)


def default_world(settings: WorldSettings | None = None) -> Path:
    """Return the folder of a world in the cache, which is generated at first use within a few seconds.

    Args:
        settings: Which world; the default settings' if None.
    """
    settings = settings or WorldSettings()
    key = blake2b(json.dumps([VERSION, asdict(settings)]).encode(), digest_size=8).hexdigest()
    folder = cache_home() / "retrieval" / "worlds" / f"seed-{settings.seed}-{key}"
    return first_use(folder, QUESTIONS, lambda partial: _write_files(generate_world(settings), partial))


def _write_files(world: World, folder: Path) -> None:
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
