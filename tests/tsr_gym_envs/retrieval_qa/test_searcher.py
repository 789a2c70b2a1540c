"""Scripted players: what they may know, what they reach, and the bounds that the generated world promises."""

import json
from itertools import combinations

import pytest

from tests.tsr_gym_envs.retrieval_qa.fakes import QUESTIONS, WordRetriever, qa
from tests.tsr_gym_envs.retrieval_qa.naive_world import holds
from tsr_gym_envs.lucene_bm25 import BM25Index
from tsr_gym_envs.retrieval_qa.contract import Passage, Question
from tsr_gym_envs.retrieval_qa.env import make
from tsr_gym_envs.retrieval_qa.players import (
    UNKNOWN,
    Oracle,
    ScriptedSearcher,
    SingleQuery,
    answers_read,
    best_searches,
    legible,
    next_query,
    play,
)
from tsr_gym_envs.retrieval_qa.world import WorldSettings, generate_world


def unmarked(question):
    """Return a question without question marks, which the page's retriever takes for a part of the word before."""
    steps = tuple((query.rstrip("?"), found) for query, found in question.steps)
    return question._replace(question=question.question.rstrip("?"), steps=steps)


MAYOR, CHILDREN, CAPITAL, KARST = map(unmarked, QUESTIONS)
TITLES = {"p0": "Ada Moor", "p1": "Velden", "p2": "Otto Brand", "p3": "River Sull", "p4": "Karst"}
PROTOCOLS = ("search-r1", "skyrl", {"preset": "verl", "ends_on_invalid": False})


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


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=("search-r1", "skyrl", "verl"))
def test_the_scripted_searcher_follows_the_decomposition_and_answers(protocol):
    env = qa(protocol=protocol)
    played = play(env, MAYOR, player_of(ScriptedSearcher, env, MAYOR))
    assert played == (True, True, 1.0, 2)
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


def test_the_scripted_searcher_does_not_answer_what_it_has_not_read():
    corpus = (("p0", "Ada Moor", "Ada Moor knows the mayor, Otto Brand, but nobody knows where she was born."),)
    env = qa(retriever=WordRetriever(corpus))
    played = play(env, MAYOR, player_of(ScriptedSearcher, env, MAYOR))
    assert (played.exact_match, played.answer_seen) == (False, True)
    assert env.unwrapped.state.answer == UNKNOWN


def test_players_answer_in_the_last_turn_whatever_is_left_to_search():
    env = qa(max_turns=1)
    played = play(env, MAYOR, player_of(ScriptedSearcher, env, MAYOR))
    assert (played.searches, played.exact_match) == (1, False)
    assert env.unwrapped.state.answer == UNKNOWN


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


def test_the_single_query_answers_only_what_it_reads():
    env = qa()
    assert play(env, KARST, player_of(SingleQuery, env, KARST)).exact_match
    played = play(env, CAPITAL, player_of(SingleQuery, env, CAPITAL))
    assert (played.exact_match, played.supporting_recall, env.unwrapped.state.answer) == (False, None, UNKNOWN)


def test_a_question_without_decomposition_is_searched_for_as_it_is():
    env = qa()
    scripted, single = (play(env, KARST, player_of(player, env, KARST)) for player in (ScriptedSearcher, SingleQuery))
    assert scripted == single == (True, True, 1.0, 1)


class Table:
    """A retriever that gives what a table says."""

    digest = "table"

    def __init__(self, rows):
        self.rows = rows

    def retrieve(self, queries, k):
        return [[Passage(name, name, text) for name, text in self.rows.get(query, ())][:k] for query in queries]


def test_the_oracle_reaches_what_no_other_choice_of_its_candidates_exceeds():
    question = Question("q", "s", "Q?", ("gold",), ("a", "b", "c"), steps=(("first", "x"), ("of #1", "gold")))
    table = Table(
        {
            "Q?": [("a", "x"), ("b", "y")],
            "A": [("a", "x")],
            "B": [("b", "y"), ("c", "z")],
            "C": [("d", "gold")],
            "of x": [("c", "gold")],
        }
    )
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


def test_the_oracle_plays_its_searches():
    env = qa()
    queries = best_searches(MAYOR, WordRetriever(), TITLES, max_searches=4, top_k=1)
    assert play(env, MAYOR, player_of(Oracle, env, MAYOR, queries)) == (True, True, 1.0, 2)


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


def check_bounds(questions, hits, scripted):
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


def test_the_world_needs_several_searches_and_the_scripted_searcher_answers_it(tmp_path):
    check_bounds(*played_world(0, tmp_path))


@pytest.mark.deep
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_other_worlds_keep_the_same_bounds(tmp_path, seed):
    check_bounds(*played_world(seed, tmp_path))


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
