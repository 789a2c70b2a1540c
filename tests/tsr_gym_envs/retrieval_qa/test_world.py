"""The generated world: its text states its facts, its questions have one fair answer each, its splits are apart."""

import json
import os
import subprocess
import sys
from collections import Counter
from hashlib import blake2b
from itertools import combinations

import pytest

from tests.conftest import ROOT, run_python
from tests.tsr_gym_envs.retrieval_qa.fakes import holds, says, solve_naively
from tsr_gym import ConfigError, GenerationFailed
from tsr_gym_envs.retrieval_qa.questions import load_questions
from tsr_gym_envs.retrieval_qa.world import WorldSettings, default_world, generate_world, write_world
from tsr_gym_envs.retrieval_qa.world.facts import Literal
from tsr_gym_envs.retrieval_qa.world.sentences import grammar
from tsr_gym_envs.retrieval_qa.world.world import FRAMES, VERSION

SMALL = WorldSettings(num_entities=500, num_questions=150)
YES_NO = (("yes",), ("no",))


@pytest.fixture(scope="module")
def world():
    return generate_world()


@pytest.fixture(scope="module")
def small():
    return generate_world(SMALL)


@pytest.fixture(scope="module")
def solved(world):
    """All answers to each question with the facts that they rest on, found naively."""
    facts = list(world.knowledge.facts.values())
    return [solve_naively(form, world, facts) for form in world.forms]


def test_there_are_as_many_kinds_relations_and_patterns_as_promised_each_with_its_slots():
    known = grammar()
    assert len(known.kinds) >= 10
    assert len(known.relations) >= 25
    assert len(known.statements | known.questions) + len(FRAMES) >= 200
    assert min(len(known.statements), len(known.questions)) >= 200
    for relation in grammar().relations.values():
        assert all("{o}" in pattern for pattern in relation.state + relation.back)
        assert all("{x}" in p for p in relation.noun + relation.inoun + relation.ask + relation.iask)
        assert all("{a}" in p and "{b}" in p for p in relation.same + relation.before)
        assert all(p.endswith("?") for p in relation.ask + relation.iask + relation.same + relation.before)
        assert relation.is_literal or relation.noun
        assert bool(relation.less) == bool(relation.more)
        assert bool(relation.inoun) == bool(relation.iask) == bool(relation.ifind)
        if relation.less or relation.before:
            assert relation.is_literal


def test_the_default_world_has_the_size_that_it_documents(world):
    assert 2000 <= len(world.passages) <= 5000
    assert len(world.questions) == 1500
    assert [passage.id for passage in world.passages] == [str(place) for place in range(len(world.passages))]
    assert len({passage.title for passage in world.passages}) == len(world.passages)
    lengths = [len(passage.text.split()) for passage in world.passages]
    assert min(lengths) >= 35
    assert max(lengths) <= 115
    assert sum(40 <= length <= 110 for length in lengths) >= 0.99 * len(lengths)
    assert {entity.kind for entity in world.knowledge.entities} == set(grammar().kinds)


def test_the_passages_state_every_fact_and_leave_no_slot_open(world):
    for text in [p.contents for p in world.passages] + [q.question for q in world.questions]:
        assert not set("{}#") & set(text)
        assert "  " not in text
    for fact in list(world.knowledge.facts.values())[::2]:
        text = world.passages[int(world.pages[fact.subject])].text
        assert says(text, fact.relation, fact.text), (fact, text)
        if not isinstance(fact.object, Literal):
            found = world.knowledge.entities[fact.object]
            assert fact.text in (found.name, found.alias)
            # A reader of the alias can find its owner.
            assert holds(world.passages[int(world.pages[fact.object])].contents, fact.text)


def test_no_name_stands_within_another(world):
    names = {}
    for entity in world.knowledge.entities:
        for name in filter(None, (entity.name, entity.alias)):
            names.setdefault(name, []).append(entity)
    for name, bearers in names.items():
        # Only a film and the book that lent it its title.
        assert len(bearers) == 1 or sorted(entity.kind for entity in bearers) == ["book", "film"]
        words = name.split()
        for start, end in combinations(range(len(words) + 1), 2):
            part = " ".join(words[start:end])
            for other in names.get(part, ()) if part != name else ():
                assert other in bearers, f"{part!r} within {name!r}"


def test_people_and_works_are_consistent_in_time(world):
    entities, facts = world.knowledge.entities, world.knowledge.facts

    def year(number, relation):
        fact = facts.get((number, relation))
        return None if fact is None else fact.object.order // (10_000 if relation == "birth_date" else 1)

    checked = Counter()
    for fact in facts.values():
        if isinstance(fact.object, Literal):
            continue
        born, other = year(fact.subject, "birth_date"), year(fact.object, "birth_date")
        if fact.relation in ("father", "mother"):
            assert 20 <= born - other <= 40
        elif fact.relation in ("director", "author", "producer"):
            work = {"director": "film_year", "author": "book_year", "producer": "album_year"}[fact.relation]
            assert 20 <= year(fact.subject, work) - other <= 60
            died = year(fact.object, "death_year")
            assert died is None or died >= year(fact.subject, work)
        elif fact.relation == "based_on":
            assert year(fact.object, "book_year") <= year(fact.subject, "film_year")
        elif fact.relation == "performer":
            assert year(fact.object, "formed_year") <= year(fact.subject, "album_year")
        elif fact.relation == "educated_at":
            assert year(fact.object, "university_year") <= born + 25
        elif fact.relation == "spouse":
            back = facts.get((fact.object, "spouse"))
            assert back is None or back.object == fact.subject
        else:
            continue
        checked[fact.relation] += 1
    assert min(checked.values()) >= 10
    assert len(checked) == 9
    assert all(entity.born <= 1978 for entity in entities)


def test_every_question_has_one_answer_which_does_not_stand_in_it(world, solved):
    for question, found in zip(world.questions, solved, strict=True):
        ((answers, rests_on),) = found
        assert answers == question.golden_answers
        assert {world.pages[fact.subject] for fact in rests_on} == set(question.supporting)
    for question in world.questions:
        for answer in question.golden_answers:
            assert not holds(question.question, answer), question
        for _, found in question.steps:
            assert not holds(question.question, found), question


def test_supporting_passages_hold_each_step_which_refers_only_to_earlier_ones(world):
    for question in world.questions:
        texts = [world.passages[int(name)].contents for name in question.supporting]
        assert question.hops == len(texts) == len(set(question.supporting))
        for _, found in question.steps:
            assert any(holds(text, found) for text in texts)
        if question.golden_answers in YES_NO:
            continue
        holding = [any(holds(text, answer) for answer in question.golden_answers) for text in texts]
        assert sum(holding) == 1
        assert holding[-1] or question.id.startswith("comparison")
        assert any(question.steps[-1][1] == answer for answer in question.golden_answers)
    for question in world.questions:
        for number, (query, _) in enumerate(question.steps):
            references = [int(part.split()[0]) for part in query.split("#")[1:]]
            assert all(1 <= reference <= number for reference in references)
            assert not any(holds(query, found) for _, found in question.steps)


def test_splits_share_nothing_and_each_has_every_kind_of_question(world, solved):
    owners = {}
    for question, ((_, rests_on),) in zip(world.questions, solved, strict=True):
        keys = [("fact", fact) for fact in rests_on]
        if not question.golden_answers[0][0].isdigit() and question.golden_answers not in YES_NO:
            keys.append(("answer", question.golden_answers))
        for key in [*keys, ("question", question.question)]:
            assert owners.setdefault(key, question.split) == question.split, (question, key)
    assert Counter(question.split for question in world.questions) == {"train": 1200, "valid": 150, "test": 150}
    assert len({question.question for question in world.questions}) == 1500
    assert len({question.group for question in world.questions}) == 1500
    for split in ("train", "valid", "test"):
        sorts = Counter(question.id.partition("-")[0] for question in world.questions if question.split == split)
        assert set(sorts) == {"1hop", "2hop", "3hop", "4hop", "comparison", "yesno"}
    answers = Counter(question.golden_answers[0] for question in world.questions if question.golden_answers in YES_NO)
    assert 0.35 <= answers["yes"] / answers.total() <= 0.65


def test_hops_and_sorts_of_questions_can_be_chosen():
    long = generate_world(num_entities=500, num_questions=30, hops=(0, 0, 0, 1), p_comparison=0.0, p_yes_no=0.0)
    assert {question.hops for question in long.questions} == {4}
    compared = generate_world(num_entities=500, num_questions=30, p_comparison=1.0, p_yes_no=0.0)
    assert {form.kind for form in compared.forms} == {"comparison"}
    doubted = generate_world(num_entities=500, num_questions=30, p_comparison=0.0, p_yes_no=1.0)
    assert {form.kind for form in doubted.forms} == {"same", "before"}
    assert {question.golden_answers for question in doubted.questions} == set(YES_NO)


def test_aliases_lookalikes_backlinks_and_overviews_can_be_switched_off():
    plain = generate_world(
        num_entities=500, num_questions=50, p_alias=0.0, p_lookalike=0.0, p_backlink=0.0, overviews=0.0
    )
    entities = plain.knowledge.entities
    assert len(plain.passages) == len(entities)
    for fact in plain.knowledge.facts.values():
        assert isinstance(fact.object, Literal) or fact.text == entities[fact.object].name
    assert len({entity.name for entity in entities}) == len(entities)
    aliases = [entity.alias for entity in entities if entity.alias and not entity.name.startswith(entity.alias)]
    assert len(aliases) > 50
    assert not any(holds(q.question, alias) for q in plain.questions for alias in aliases if "the" not in alias)
    directed = {fact.object: fact.subject for fact in plain.knowledge.facts.values() if fact.relation == "director"}
    for director, film in directed.items():
        assert not holds(plain.passages[int(plain.pages[director])].text, entities[film].name)


def test_the_same_settings_give_the_same_bytes_in_every_process(small):
    code = (
        "from hashlib import blake2b\n"
        "from tsr_gym_envs.retrieval_qa.world import WorldSettings, generate_world\n"
        "world = generate_world(WorldSettings(num_entities=500, num_questions=150))\n"
        "print(blake2b(repr((world.passages, world.questions)).encode()).hexdigest())"
    )
    here = blake2b(repr((small.passages, small.questions)).encode()).hexdigest()
    assert run_python(code, hash_seed="1").strip() == here
    other = generate_world(num_entities=500, num_questions=150, seed=1)
    assert not {q.question for q in other.questions} & {q.question for q in small.questions}


def test_worlds_are_read_as_written_and_changes_have_another_version(small, tmp_path):
    # The cache keys worlds by settings and version: if this digest changes, raise VERSION.
    digest = blake2b(repr((small.passages, small.questions)).encode(), digest_size=8).hexdigest()
    assert (VERSION, digest) == (1, "35f26c3df63dcb7c")
    folder = write_world(small, tmp_path / "world")
    assert load_questions(folder / "questions.jsonl") == small.questions
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in rows] == [passage.id for passage in small.passages]
    assert all(row["contents"] == f'"{p.title}"\n{p.text}' for row, p in zip(rows, small.passages, strict=True))


def test_the_default_world_is_written_once_also_by_processes_that_race(tmp_path, monkeypatch):
    code = (
        "from tsr_gym_envs.retrieval_qa.world import WorldSettings, default_world\n"
        "print(default_world(WorldSettings(num_entities=500, num_questions=150)))"
    )
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path))
    command = [sys.executable, "-c", code]
    racing = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    (folder,) = {process.communicate(timeout=120)[0].strip() for process in racing}
    assert [process.returncode for process in racing] == [0, 0, 0]
    assert sorted(os.listdir(folder)) == ["corpus.jsonl", "questions.jsonl"]
    names = [name for name in os.listdir(tmp_path / "retrieval" / "worlds") if not name.startswith(".")]
    assert names == [os.path.basename(folder)]
    # Other settings are kept in another place.
    changed = os.stat(f"{folder}/corpus.jsonl").st_mtime_ns
    assert str(default_world(SMALL)) == folder
    assert os.stat(f"{folder}/corpus.jsonl").st_mtime_ns == changed
    assert str(default_world(WorldSettings(num_entities=500, num_questions=150, seed=1))) != folder


def test_impossible_settings_and_too_many_questions_are_refused_with_advice(monkeypatch):
    for wrong, message in (
        ({"num_entities": 10}, "num_entities >= 300"),
        ({"num_questions": 0}, "num_questions >= 1"),
        ({"p_alias": 1.5}, "p_alias between 0 and 1, got 1.5"),
        ({"p_comparison": 0.6, "p_yes_no": 0.6}, r"p_comparison \+ p_yes_no between 0 and 1"),
        ({"hops": (0, 0, 0, 0)}, "four hops"),
        ({"overviews": -1}, "overviews between 0 and 100"),
        ({"splits": (8, 1, 2)}, "three tenths that sum to 10"),
    ):
        with pytest.raises(ConfigError, match=message):
            WorldSettings(**wrong)
    monkeypatch.setattr("tsr_gym_envs.retrieval_qa.world.world.MAX_DRAWS", 100)
    with pytest.raises(GenerationFailed, match="ask for fewer questions or more entities"):
        generate_world(num_entities=300, num_questions=1000, p_comparison=0.0, p_yes_no=0.0, hops=(0, 0, 0, 1))
