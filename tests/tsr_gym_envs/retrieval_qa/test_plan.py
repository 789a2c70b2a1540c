"""Plans: turns for anybody who reads the question, and the turns of its decomposition."""

from tests.tsr_gym_envs.retrieval_qa.fakes import QUESTIONS
from tsr_gym_envs.retrieval_qa.grading import is_structured
from tsr_gym_envs.retrieval_qa.plan import next_turn, queries_of, sensible_turns
from tsr_gym_envs.retrieval_qa.protocol import PROTOCOLS

SEARCH_R1 = PROTOCOLS["search-r1"]
FIRST, SECOND = "Where was Ada Moor born?", "Who is the mayor of Velden?"


def test_sensible_turns_ask_for_the_question_and_its_names():
    assert sensible_turns("Who was the mayor of Velden when Ada Moor's book Karst came out?", (), SEARCH_R1) == (
        "<search>Who was the mayor of Velden when Ada Moor's book Karst came out?</search>",
        "<search>Velden</search>",
        "<search>Ada Moor's</search>",
        "<search>Karst</search>",
        "<answer>yes</answer>",
        "<answer>no</answer>",
    )


def test_sensible_turns_go_on_with_what_was_read():
    assert sensible_turns("who?", ("Velden", "Karst", "Velden", ""), SEARCH_R1) == (
        "<search>who?</search>",
        "<search>Velden</search>",
        "<search>Karst</search>",
        "<answer>Velden</answer>",
        "<answer>Karst</answer>",
    )


def test_references_are_filled_in_with_earlier_answers():
    assert queries_of(QUESTIONS[0]) == (FIRST, SECOND)
    odd = QUESTIONS[0]._replace(steps=(("Who is #9 or #0?", "x"), ("#1#1", "y")))
    assert queries_of(odd) == ("Who is #9 or #0?", "xx")


def turn(asked=(), question=QUESTIONS[0], may_search=True, structured=False):
    return next_turn(question, asked, SEARCH_R1, may_search=may_search, structured=structured)


def test_the_decomposition_is_searched_for_and_then_answered():
    assert turn() == f"<search>{FIRST}</search>"
    assert turn({FIRST}) == f"<search>{SECOND}</search>"
    assert turn({SECOND}) == f"<search>{FIRST}</search>"
    assert turn({FIRST, SECOND}) == "<answer>Otto Brand</answer>"
    assert turn(may_search=False) == "<answer>Otto Brand</answer>"


def test_without_a_decomposition_there_is_no_plan():
    assert turn(question=QUESTIONS[1]) is None


def test_where_structure_is_paid_for_a_thought_comes_first():
    assert is_structured(turn(may_search=False, structured=True))
    assert turn(structured=True).endswith(f"</think>\n<search>{FIRST}</search>")
