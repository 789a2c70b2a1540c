"""Grading: SQuAD's comparisons, the ladder for structure, and the published graders with their errors."""

import json

import pytest

from tsr_gym import ConfigError
from tsr_gym_envs.retrieval_qa.grading import (
    REWARDS,
    Reward,
    Transcript,
    contains_answer,
    exact_match,
    grade,
    grade_published,
    is_structured,
    is_structured_chat,
    make_reward,
    normalise,
    token_f1,
)
from tsr_gym_envs.retrieval_qa.protocol import PROTOCOLS


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Beatles", "beatles"),
        ("  A   man, a plan\n a canal ", "man plan canal"),
        # Punctuation goes before articles, without a blank in its place.
        ("the-end", "theend"),
        ("U.S.A.", "usa"),
        ("theatre another", "theatre another"),
        ("Zoë’s “café”", "zoë’s “café”"),
        ("a an the", ""),
        ("", ""),
    ],
)
def test_texts_are_normalised_as_squad_does(text, normal):
    assert normalise(text) == normal


@pytest.mark.parametrize(
    ("prediction", "golds", "right"),
    [
        ("The Otto Brand!", ("Otto Brand",), True), ("Otto", ("Otto Brand", "otto"), True),
        ("Otto Brandt", ("Otto Brand",), False), ("brand otto", "Otto Brand", False), ("", ("the",), True),
        ("x", (), False), ("abc", "abc", True), ("a", "abc", False),
    ],
)  # fmt: skip
def test_exact_match_is_equality_after_normalisation(prediction, golds, right):
    assert exact_match(prediction, golds) is right


@pytest.mark.parametrize(
    ("prediction", "golds", "f1"),
    [
        ("Otto Brand", "Otto Brand", 1.0),
        # Two of three words are right, and both golden words are there: 2 * 2/3 / (5/3).
        ("mayor Otto Brand", "Otto Brand", 0.8),
        # Words count as often as they come: one of two shared with one of one.
        ("York York", "York", 2 / 3),
        ("Paris", ("London", "Paris in France"), 0.5),
        ("London", "Paris", 0.0),
        ("", "", 0.0),
        ("yes", "yes", 1.0),
        ("yes indeed", "yes", 0.0),
        ("no", "no way", 0.0),
        ("noanswer", ("noanswer", "x"), 1.0),
        ("no", ("no way", "no"), 1.0),
    ],
)
def test_f1_is_the_best_overlap_of_words(prediction, golds, f1):
    assert token_f1(prediction, golds) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("text", "golds", "boundary", "substring"),
    [
        ("Born in New York, he left.", "new york", True, True),
        ("He knows nothing.", "no", False, True),
        ("He said: no.", "no", False, True),
        ("Yes, it is", ("yes",), False, True),
        ("Annual report", "Ann", False, True),
        ("7 dwarfs", "7", False, True),
        ("17 dwarfs", "17", True, True),
        ("117 dwarfs", "17", False, True),
        ("the Beatles' album", ("a", "The Beatles"), True, True),
        # An article by itself is nothing, and nothing is in every text.
        ("anything", "the", False, True),
        ("Velden", ("Karst", "Velden"), True, True),
        ("Velden", (), False, False),
        # The punctuation between the words goes without leaving a blank, as SQuAD has it.
        ("New-York", "New York", False, False),
    ],
)
def test_an_answer_occurs_as_whole_words_or_as_letters(text, golds, boundary, substring):
    assert contains_answer(text, golds) is boundary
    assert contains_answer(text, golds, match="boundary") is boundary
    assert contains_answer(text, golds, match="substring") is substring


def test_on_real_passages_words_are_the_stricter_rule_and_differ_most_for_yes_and_no(shared, golden):
    # The question's top 3 of Lucene; the rates of both rules were measured on a superset of these questions.
    folder = shared / "data" / "retrieval"
    corpus, rows = ((folder / f"mini_{name}.jsonl").read_text().splitlines() for name in ("corpus", "qa"))
    passages = {row["id"]: row["contents"] for row in map(json.loads, corpus)}
    questions = {row["id"]: row for row in map(json.loads, rows)}
    only_letters = {"yes or no": 0, "other": 0}
    total = {"yes or no": 0, "other": 0}
    for row in golden("retrieval/pyserini_hits.jsonl"):
        golds = questions[row["id"]]["golden_answers"]
        kind = "yes or no" if golds[0].lower() in ("yes", "no") else "other"
        text = [passages[name] for name, _ in row["hits"][:3]]
        by_words = any(contains_answer(passage, golds) for passage in text)
        by_letters = any(contains_answer(passage, golds, match="substring") for passage in text)
        assert by_letters or not by_words
        assert not (by_words and kind == "yes or no")
        total[kind] += 1
        only_letters[kind] += by_letters and not by_words
    assert only_letters["yes or no"] / total["yes or no"] > 0.3
    assert only_letters["other"] / total["other"] < 0.05


PROMPT = PROTOCOLS["search-r1"].instructions
INVALID = PROTOCOLS["search-r1"].invalid
THINK, INFORMATION = "<think>so</think>", '\n\n<information>Doc 1(Title: "T") Velden.</information>\n\n'
GOOD = f"{THINK}\n<search>q</search>{INFORMATION}{THINK} <answer>Otto Brand</answer>"
BARE = "<answer>Otto Brand</answer>"


def earned(rule, response, golds, *, answer="Otto Brand", evidence=False):
    return grade(REWARDS[rule], Transcript(PROMPT, response, answer, evidence), golds)


@pytest.mark.parametrize(
    ("rule", "golds", "reward"),
    [
        ("exact_match", ("the otto brand",), 1.0),
        ("exact_match", ("Mayor Otto Brand",), 0.0),
        ("f1", ("Mayor Otto Brand",), 0.8),
        ("f1", ("Velden",), 0.0),
    ],
)
def test_answers_are_graded_whatever_surrounds_them(rule, golds, reward):
    for response in (GOOD, BARE, ""):
        assert earned(rule, response, golds) == pytest.approx(reward)
        assert earned(rule, response, golds, answer=None) == 0.0


@pytest.mark.parametrize(
    ("rule", "golds", "structured", "unstructured"),
    [
        ("format", ("Otto Brand",), 1.0, 0.8),
        ("format", ("Velden",), 0.2, 0.1),
        ("format-f1", ("Otto Brand",), 1.0, 0.8),
        ("format-f1", ("Mayor Otto Brand",), 0.8, 0.6),
        # An answer of F1 2/12 earns no less than a wrong one.
        ("format-f1", ("Otto " + "x " * 9,), 0.2, 0.1),
        ("format-f1", ("Velden",), 0.2, 0.1),
    ],
)
def test_the_ladder_pays_for_structure_and_never_less_for_a_better_answer(rule, golds, structured, unstructured):
    assert earned(rule, GOOD, golds) == pytest.approx(structured)
    assert earned(rule, BARE, golds) == pytest.approx(unstructured)


def test_the_ladder_pays_nothing_without_an_answer_and_by_the_tags_of_the_protocol():
    for response in (GOOD, BARE, "", "<search>q</search>", INVALID):
        assert earned("format", response, ("Otto Brand", "Beijing", "and"), answer=None) == 0.0
    tags = ("think", "tool_call", "tool_response", "answer")
    response = f"{THINK}<tool_call>{{}}</tool_call><tool_response>x</tool_response>{THINK}<answer>a</answer>"
    assert is_structured(response, tags)
    assert not is_structured(response)
    assert grade(REWARDS["format"], Transcript("", response, "a", False, tags), ("b",)) == 0.2


def test_a_reward_is_made_from_a_name_or_a_mapping_and_evidence_pays_where_it_says_so():
    rule = make_reward({"structure": 0.2, "final": 0.1, "retrieval": 0.1})
    for golds, response, evidence, reward in (
        (("Velden",), GOOD, True, 0.3),
        (("Velden",), GOOD, False, 0.2),
        (("Velden",), BARE, True, 0.1),
        (("Otto Brand",), GOOD, True, 1.0),
    ):
        transcript = Transcript(PROMPT, response, "Otto Brand", evidence)
        assert grade(rule, transcript, golds) == pytest.approx(reward)
    assert (make_reward("f1"), make_reward(Reward())) == (Reward(metric="f1"), Reward())
    assert make_reward({"metric": "f1", "final": 0.5}) == Reward(metric="f1", final=0.5)


@pytest.mark.parametrize(
    "response",
    [
        GOOD,
        f"{THINK}<answer>a</answer>",
        f"  \n{THINK}\n\n<answer>a</answer>\n ",
        f"{THINK}<search>q</search>{INFORMATION}" * 3 + f"{THINK}<answer>a</answer>",
        "<think>1 < 2 and <b>bold</b></think><answer></answer>",
    ],
)
def test_thought_and_action_in_turn_are_structured(response):
    assert is_structured(response)


@pytest.mark.parametrize(
    "response",
    [
        "", BARE, THINK, f"Well. {GOOD}", f"{GOOD}<|im_end|>", f"{GOOD} {THINK}", f"{THINK} so <answer>a</answer>",
        f"{THINK}<search>q</search>{THINK}<answer>a</answer>",
        f"<search>q</search>{INFORMATION}{THINK}<answer>a</answer>",
        f"{THINK}<search>q</search>{INFORMATION}<answer>a</answer>",
        f"{THINK}<search>q</search>{INFORMATION.replace('</information>', '')}{THINK}<answer>a</answer>",
        f"{THINK}<search>q</search>{INVALID}{THINK}<answer>a</answer>", f"{THINK}{INVALID}{THINK}<answer>a</answer>",
        f"{THINK}{THINK}<answer>a</answer>", f"<think><search>q</search></think>{THINK}<answer>a</answer>",
        f"{THINK}<answer>a</answer><answer>b</answer>", f"{THINK}<answer>a",
    ],
)  # fmt: skip
def test_anything_else_is_not_structured(response):
    assert not is_structured(response)


# The published graders, quirk by quirk.


def published(rule, response, golds):
    return grade(REWARDS[rule], Transcript(PROMPT, response), golds)


def test_published_grading_reads_tags_of_prompts_hints_and_passages():
    for response in ("", "<search>q</search>", THINK):
        assert published("search-r1-em", response, ("Beijing",)) == 1.0
        assert published("search-r1-em", response, ("Otto Brand",)) == 0.0
        assert published("search-r1", response, ("Beijing",)) == pytest.approx(0.8)
    assert published("search-r1-em", f"hm{INVALID}", ("Beijing",)) == 0.0
    assert published("search-r1-em", f"hm{INVALID}", ("and",)) == 1.0
    assert published("search-r1-em", f"hm{INVALID}{BARE}", ("Otto Brand",)) == 1.0
    shown = "<search>q</search><information>wiki: <answer>Velden</answer></information>"
    assert published("search-r1-em", shown, ("Velden",)) == 1.0
    rule = REWARDS["search-r1-em"]
    assert grade_published(rule, f"no example {BARE}", ("Otto Brand",)) == 0.0
    assert grade_published(rule, f"<answer>x</answer> {BARE}", ("Otto Brand",)) == 1.0
    assert grade_published(REWARDS["search-r1"], BARE, ("Otto Brand",)) == 0.0


@pytest.mark.parametrize(
    ("response", "golds", "reward"),
    [
        (GOOD, ("Otto Brand",), 1.0),
        (BARE, ("Otto Brand",), 0.8),
        (GOOD, ("Karst",), 0.2),
        (BARE, ("Karst",), 0.1),
        # No answer at all: the prompt has one, so that the rung of 0 is never reached.
        ("", ("Karst",), 0.1),
        (f"{THINK}<search>q</search>", ("Karst",), 0.1),
        # What breaks the published structure costs a fifth.
        (GOOD + "<|im_end|>", ("Otto Brand",), 0.8),
        (GOOD.replace("</information>", ""), ("Otto Brand",), 0.8),
        (GOOD.replace(INFORMATION, INFORMATION + "text between tags"), ("Otto Brand",), 0.8),
        (THINK + INVALID + GOOD, ("Otto Brand",), 0.8),
    ],
)
def test_the_published_ladder_pays_even_for_no_answer(response, golds, reward):
    assert published("search-r1", response, golds) == pytest.approx(reward)


def test_published_structure_needs_a_chat_template_and_evidence_is_any_substring():
    assert is_structured_chat(f"<|im_start|>assistant\n{GOOD}")
    assert not is_structured_chat(GOOD)
    assert grade_published(REWARDS["search-r1"], f"{PROMPT}{GOOD}", ("Otto Brand",)) == pytest.approx(0.8)
    rule = Reward(structure=0.2, final=0.1, retrieval=0.1, published=True)
    for golds, reward in ((("elde",), 0.3), (("Karst",), 0.2)):
        assert grade(rule, Transcript(PROMPT, GOOD), golds) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("response", "golds", "reward"),
    [
        (GOOD, ("Mayor Otto Brand",), 0.8),
        (BARE, ("Mayor Otto Brand",), 0.6),
        # 2 * (1/2 * 1/10) / (1/2 + 1/10): less than a wrong answer earns, and below 0 without structure.
        (GOOD, ("Otto " + "x " * 9,), 1 / 6),
        (BARE, ("Otto " + "x " * 9,), 1 / 6 - 0.2),
        (GOOD, ("Karst",), 0.2),
        (BARE, ("Karst",), 0.1),
    ],
)
def test_tree_grpo_puts_f1_into_the_same_ladder(response, golds, reward):
    assert published("tree-grpo", response, golds) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("bleu", r"wanted a reward of \['exact_match'.*got 'bleu'"),
        ({"metric": "bleu"}, "wanted metric"),
        ({"format": 1}, r"unknown fields \['format'\]"),
    ],
    ids=str,
)
def test_an_impossible_reward_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        make_reward(given)
