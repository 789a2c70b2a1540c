"""Sensible turns, random play, scripted players and teachers: their knowledge, their reach, and promised bounds."""

import json
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from tests.conftest import deep
from tests.tsr_gym_envs.retrieval_qa.fakes import PASSAGES, QUESTIONS, WordRetriever, at, holds, qa
from tests.tsr_gym_envs.trips import trip
from tsr_gym_envs.lucene_bm25 import BM25Index
from tsr_gym_envs.retrieval_qa.contract import Passage, Question
from tsr_gym_envs.retrieval_qa.env import make
from tsr_gym_envs.retrieval_qa.grading import is_structured
from tsr_gym_envs.retrieval_qa.plan import Searches, next_turn, queries_of, random_success, sensible_turns
from tsr_gym_envs.retrieval_qa.players import (
    MAX_TURNS,
    UNKNOWN,
    WORLD,
    ScriptedSearcher,
    SingleQuery,
    answers_read,
    best_searches,
    legible,
    next_query,
    play,
    poor_turn,
    teacher_turn,
)
from tsr_gym_envs.retrieval_qa.protocol import PROTOCOLS
from tsr_gym_envs.retrieval_qa.world import WorldSettings, generate_world

SEARCH_R1 = PROTOCOLS["search-r1"]
FIRST, SECOND = "Where was Ada Moor born?", "Who is the mayor of Velden?"


def test_sensible_turns_ask_for_the_question_its_names_and_what_was_read():
    question = "Who was the mayor of Velden when Ada Moor's book Karst came out?"
    searches = [f"<search>{text}</search>" for text in (question, "Velden", "Ada Moor's", "Karst")]
    assert sensible_turns(question, (), SEARCH_R1) == (*searches, "<answer>yes</answer>", "<answer>no</answer>")
    searches = [f"<search>{text}</search>" for text in ("who?", "Velden", "Karst")]
    answers = "<answer>Velden</answer>", "<answer>Karst</answer>"
    assert sensible_turns("who?", ("Velden", "Karst", "Velden", ""), SEARCH_R1) == (*searches, *answers)


def turn(asked=(), question=QUESTIONS[0], may_search=True, structured=False):
    return next_turn(question, asked, SEARCH_R1, may_search=may_search, structured=structured)


def test_the_decomposition_is_searched_for_with_references_filled_in_and_then_answered():
    assert turn() == f"<search>{FIRST}</search>"
    assert turn({FIRST}) == f"<search>{SECOND}</search>"
    assert turn({SECOND}) == f"<search>{FIRST}</search>"
    assert turn({FIRST, SECOND}) == "<answer>Otto Brand</answer>"
    assert turn(may_search=False) == "<answer>Otto Brand</answer>"
    assert turn(question=QUESTIONS[1]) is None
    assert is_structured(turn(may_search=False, structured=True))
    assert turn(structured=True).endswith(f"</think>\n<search>{FIRST}</search>")
    assert queries_of(QUESTIONS[0]) == (FIRST, SECOND)
    odd = QUESTIONS[0]._replace(steps=(("Who is #9 or #0?", "x"), ("#1#1", "y")))
    assert queries_of(odd) == ("Who is #9 or #0?", "xx")


WIRE = PROTOCOLS["search-r1"]
TOWN, SAYS_MAYOR = "<search>Velden</search>", "<answer>Otto Brand</answer>"


def turns(titles):
    """Return a search for the town and the answer yes; after a search also the answer with the mayor."""
    return (TOWN, "<answer>yes</answer>", SAYS_MAYOR) if titles else (TOWN, "<answer>yes</answer>")


@pytest.mark.parametrize(
    ("num_turns", "wanted"),
    [
        # In the last turn nothing is searched, and yes is wrong.
        (1, Fraction(0)),
        # A search in one of two, then the mayor in one of three.
        (2, Fraction(1, 2) * Fraction(1, 3)),
        # After that search, the mayor at once, or another search and then the mayor.
        (3, Fraction(1, 2) * (Fraction(1, 3) + Fraction(1, 3) * Fraction(1, 3))),
    ],
)
def test_random_success_is_the_mean_over_turns(num_turns, wanted):
    searches = Searches(WordRetriever(), WIRE, 1, 16)
    assert random_success(QUESTIONS[0], searches, turns, WIRE, num_turns) == pytest.approx(float(wanted))


def unmarked(question):
    """Return a question without question marks, which the page's retriever takes for a part of the word before."""
    steps = tuple((query.rstrip("?"), found) for query, found in question.steps)
    return question._replace(question=question.question.rstrip("?"), steps=steps)


MAYOR, CHILDREN, CAPITAL, KARST = map(unmarked, QUESTIONS)
WIRES = ("search-r1", "skyrl", {"preset": "verl", "ends_on_invalid": False})


class BM25:
    """The project's index over a world's passages, as a retriever."""

    digest = "world"

    def __init__(self, passages, path):
        self.passages = passages
        self.index = BM25Index.build([(passage.id, passage.contents) for passage in passages], path)

    def retrieve(self, queries, k):
        hits = self.index.search(list(queries), k)
        return [[self.passages[hit.number]._replace(score=hit.score) for hit in found] for found in hits]


def player_of(make_player, env, question, *rest):
    return make_player(question, env.settings.protocol, *rest)


@pytest.mark.parametrize("protocol", WIRES, ids=("search-r1", "skyrl", "verl"))
def test_the_scripted_searcher_follows_the_decomposition_and_answers(protocol):
    env = qa(protocol=protocol)
    assert play(env, MAYOR, player_of(ScriptedSearcher, env, MAYOR)) == (True, True, 1.0, 2)
    queries = [query for turn in env.unwrapped.state.turns for query in turn.queries]
    assert queries == ["Where was Ada Moor born", "Who is the mayor of Velden"]


def test_a_reference_is_filled_only_with_what_was_read():
    read = "Doc 1(Title: Ada Moor) She was born in Velden."
    assert answers_read(MAYOR, [read]) == ("Velden", None)
    assert next_query(MAYOR, []) == "Where was Ada Moor born"
    assert next_query(MAYOR, [read]) == "Who is the mayor of Velden"
    assert next_query(MAYOR, ["Doc 1(Title: Ada Moor) She was born in Karst."]) == MAYOR.question
    odd = MAYOR._replace(steps=(("Who sang #1 hits", "Ann"), ("Song #9 of #1", "Sea")))
    assert next_query(odd, ["By Ann."]) == "Song #9 of Ann"
    assert next_query(odd, []) == "Who sang #1 hits"


def test_players_answer_only_what_they_read():
    corpus = (("p0", "Ada Moor", "Ada Moor knows the mayor, Otto Brand, but nobody knows where she was born."),)
    env = qa(retriever=WordRetriever(corpus))
    played = play(env, MAYOR, player_of(ScriptedSearcher, env, MAYOR))
    assert (played.exact_match, played.answer_seen) == (False, True)
    assert env.unwrapped.state.answer == UNKNOWN
    env = qa(max_turns=1)
    played = play(env, MAYOR, player_of(ScriptedSearcher, env, MAYOR))
    assert (played.searches, played.exact_match) == (1, False)
    assert env.unwrapped.state.answer == UNKNOWN
    env = qa()
    assert play(env, KARST, player_of(SingleQuery, env, KARST)).exact_match
    played = play(env, CAPITAL, player_of(SingleQuery, env, CAPITAL))
    assert (played.exact_match, played.supporting_recall, env.unwrapped.state.answer) == (False, None, UNKNOWN)
    env = qa()
    scripted, single = (play(env, KARST, player_of(player, env, KARST)) for player in (ScriptedSearcher, SingleQuery))
    assert scripted == single == (True, True, 1.0, 1)


def test_yes_and_no_are_answered_only_once_all_supporting_passages_were_shown():
    env = qa()
    found = CHILDREN._replace(question="Otto Brand studied")
    assert play(env, CHILDREN, player_of(SingleQuery, env, found)) == (True, False, 1.0, 1)
    blind = CHILDREN._replace(question="Who?")
    assert not play(env, CHILDREN, player_of(SingleQuery, env, blind)).exact_match
    two = CHILDREN._replace(steps=(("Otto Brand studied", "law"), ("Karst", "Anna Tann")))
    assert not play(env, CHILDREN, player_of(ScriptedSearcher, env, two)).exact_match
    one = CHILDREN._replace(steps=two.steps[:1])
    assert play(env, CHILDREN, player_of(ScriptedSearcher, env, one)).exact_match


class Table:
    """A retriever that looks its results up in a table."""

    digest = "table"

    def __init__(self, rows):
        self.rows = rows

    def retrieve(self, queries, k):
        return [[Passage(name, name, text) for name, text in self.rows.get(query, ())][:k] for query in queries]


def test_the_oracle_reaches_what_no_other_choice_of_its_candidates_exceeds():
    question = Question("q", "s", "Q?", ("gold",), ("a", "b", "c"), steps=(("first", "x"), ("of #1", "gold")))
    results = {"Q?": [("a", "x"), ("b", "y")], "A": [("a", "x")], "B": [("b", "y"), ("c", "z")], "C": [("d", "gold")]}
    table = Table({**results, "of x": [("c", "gold")]})
    titles = {"a": "A", "b": "B", "c": "C"}

    def worth(queries, k):
        found = [passage for query in queries for passage in table.retrieve([query], k)[0]]
        return any(holds(p.contents, "gold") for p in found), len({p.id for p in found} & {"a", "b", "c"})

    candidates = ("Q?", "A", "B", "C", "first", "of x")
    for top_k in (1, 2):
        for most in (1, 2, 3):
            queries = best_searches(question, table, titles, max_searches=most, top_k=top_k)
            assert len(queries) <= most
            tried = [worth(chosen, top_k) for n in range(1, most + 1) for chosen in combinations(candidates, n)]
            assert worth(queries, top_k) == max(tried)
    assert best_searches(question, table, titles, max_searches=4, top_k=2) == ("Q?", "of x")


def test_passages_are_read_without_what_a_protocol_puts_around_them():
    wrapped = "\n<information>" + json.dumps({"result": 'Doc 1: "Zoë"\nWas she {there}?'}) + "</information>\n"
    assert legible(wrapped) == 'Doc 1: "Zoë"\nWas she {there}?'
    assert legible("<information>It is Velden.</information>").split() == ["It", "is", "Velden."]
    for plain in ("Doc 1(Title: Zoë) text", "{broken", "", '{"other": 1}', "1 < 2 > 0", "{" * 100_000 + "}"):
        assert legible(plain) == plain


def played_world(seed, tmp_path):
    """Return the single query's hits and the episodes of single query and scripted searcher on a default world."""
    world = generate_world(WorldSettings(seed=seed))
    retriever = BM25(world.passages, tmp_path / f"index-{seed}")
    env = make(questions=world.questions, retriever=retriever)
    scripted = [play(env, question, player_of(ScriptedSearcher, env, question)) for question in world.questions]
    return world.questions, retriever.retrieve([q.question for q in world.questions], 3), scripted


@pytest.mark.parametrize("seed", [0, *map(deep, range(1, 5))])
def test_the_world_needs_several_searches_and_the_scripted_searcher_answers_it(tmp_path, seed):
    questions, hits, scripted = played_world(seed, tmp_path)
    multi_hop = [
        any(holds(passage.contents, answer) for passage in found for answer in question.golden_answers)
        for question, found in zip(questions, hits, strict=True)
        if question.hops >= 2 and question.golden_answers[0] not in ("yes", "no")
    ]
    assert len(multi_hop) > 1000
    assert sum(multi_hop) <= 0.4 * len(multi_hop)
    # A world in which nothing is ever found would meet the bound as well.
    assert sum(multi_hop) > 0
    assert sum(played.exact_match for played in scripted) >= 0.9 * len(scripted)
    assert all(played.searches <= 4 for played in scripted)


def test_backlinks_spare_searches(tmp_path):
    shares = []
    for p_backlink in (0.0, 1.0):
        world = generate_world(num_entities=1000, num_questions=300, hops=(0, 1, 0, 0), p_backlink=p_backlink)
        found = BM25(world.passages, tmp_path / str(p_backlink)).retrieve([q.question for q in world.questions], 3)
        held = [
            any(holds(p.contents, answer) for p in passages for answer in question.golden_answers)
            for question, passages in zip(world.questions, found, strict=True)
        ]
        shares.append(sum(held) / len(held))
    assert shares[0] + 0.02 < shares[1]


RNG = np.random.default_rng(0)


def test_the_teacher_follows_the_decomposition_and_says_what_it_read():
    env = at(0, observation_mode="compact")
    queries = "where was ada moor born", "who is the mayor of velden"
    assert trip(env, teacher_turn) == [
        *(f"<search> {query} </search>" for query in queries),
        "<answer> otto brand </answer>",
    ]
    assert env.teaching().accepts(env)
    assert trip(at(0), teacher_turn)[1] == "<search>Who is the mayor of Velden?</search>"


def test_the_teachers_answers_were_read_and_come_in_the_last_turn_at_least():
    env = at(0, observation_mode="compact", retriever=WordRetriever(PASSAGES[2:]))
    said = trip(env, teacher_turn)
    # Where she was born was not read, so nothing can be filled in: it looks for the question as it is, once.
    assert said[1:] == [
        "<search> who is the mayor of the town where ada moor was born </search>",
        "<answer> unknown </answer>",
    ]
    assert not env.teaching().accepts(env)
    env = at(0, observation_mode="compact")
    env.step("<answer> otto brand </answer>")
    assert env.is_success(env.state)
    assert not env.teaching().accepts(env)
    env = at(0, observation_mode="compact", max_turns=1)
    assert trip(env, teacher_turn) == ["<search> where was ada moor born </search>", "<answer> unknown </answer>"]


def test_the_guesser_searches_and_answers_words_that_it_was_shown():
    said = [turn for _ in range(40) for turn in trip(at(0, observation_mode="compact"), poor_turn, RNG)]
    assert all(turn.startswith("<search> ") for turn in said[:1])
    assert {turn.split()[0] for turn in said} == {"<search>", "<answer>"}
    assert len(set(said)) > 30


def test_words_are_those_of_a_generated_world_and_names_and_numbers_may_be_exchanged():
    assert (qa().teaching().words, qa().teaching().permutable) == (None, frozenset())
    assert qa(questions=QUESTIONS[1:]).teaching() is None
    assert qa(protocol="verl").teaching() is None
    assert qa().teaching().env_settings == {"observation_mode": "compact", "top_k": 1, "max_turns": MAX_TURNS}
    env = make(entities=300, questions=60, hops=[1, 2], observation_mode="compact", top_k=1, max_turns=3)
    teaching, seen, accepted = env.teaching(), set(), 0
    for seed in range(40):
        seen.update(env.reset(seed=seed)[0].split())
        while not (env.episode.terminated or env.episode.truncated):
            said = teaching.teacher_turn(env, RNG)
            assert len(said.split()) <= teaching.max_tokens
            seen.update((said + " " + env.step(said)[0]).split())
        accepted += teaching.accepts(env)
    assert accepted >= 32
    assert seen <= set(teaching.words)
    assert {"1", "19"} & {word[:2] for word in teaching.permutable}
    assert teaching.permutable.isdisjoint({"the", "was", "born", "ask", "doc", "<search>", "unknown"})
    names = {word for question in env.questions.questions for word in question.golden_answers[0].lower().split()}
    assert len(names & teaching.permutable) > len(names) / 2
    # This world was requested, so it stays.
    assert set(teaching.env_settings) == {"observation_mode", "top_k", "max_turns"}
    assert set(WORLD) == {"entities", "questions", "hops"}


def test_exact_random_success_is_what_random_play_reaches():
    env = at(0, observation_mode="compact", max_turns=2)
    assert env.success_bars(env.state) is None
    rng, wins = np.random.default_rng(1), 0
    world = make(entities=300, questions=60, hops=[1], observation_mode="compact", top_k=2, max_turns=2)
    bars = []
    for seed in range(400):
        world.reset(seed=seed % 60)
        bars.append(world.success_bars(world.state))
        while not (world.episode.terminated or world.episode.truncated):
            turns = world.legal_actions(world.state)
            *_, info = world.step(turns[rng.integers(len(turns))])
        wins += info["success"]
    expected = sum(random for random, _ in bars)
    assert {best for _, best in bars} == {1.0}
    assert expected > 0
    assert wins == pytest.approx(expected, abs=4 * expected**0.5 + 1)
