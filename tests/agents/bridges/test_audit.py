"""Audit: rows of this package's trees are clean, and every planted bug is found and named."""

import copy
import json
import math

import pytest

from tests.agents.bridges.helpers import grown_trees
from tsr_gym import ConfigError
from tsr_gym.agents.bridges.audit import audit, audit_file
from tsr_gym.agents.bridges.export import tree_chats
from tsr_gym.agents.bridges.rows import tree_rows

NAMES = ["lengths", "trained", "recorded", "answers", "turns", "text", "history", "model"]


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """Rows of three trees whose answers have several turns and tokenisations, the tokenizer, and the witness."""
    from tsr_gym.agents.bridges.audit import witness

    trees, model, tokenizer = grown_trees(3, turns=3)
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    rows = [row._asdict() for tree in trees for row in tree_rows(tree, take="leaves")]
    rows = [{name: list(part) if isinstance(part, tuple) else part for name, part in row.items()} for row in rows]
    assert max(len(row["starts"]) for row in rows) == 3
    return rows, tokenizer, witness(folder), trees


@pytest.fixture
def rows(grown):
    """A copy of the rows to spoil."""
    return [{name: list(part) if isinstance(part, list) else part for name, part in row.items()} for row in grown[0]]


def wrong(rows, *, tokenizer=None, logprobs=None):
    """Return the findings by the names of the checks."""
    checks = [check for check in audit(rows, tokenizer=tokenizer, logprobs=logprobs) if check.findings]
    return {check.name: [finding.says for finding in check.findings] for check in checks}


def test_rows_of_our_own_trees_are_clean(grown, rows):
    _, tokenizer, witness, _ = grown
    checks = audit(rows, tokenizer=tokenizer, logprobs=witness.logprobs)
    assert {check.name: check.findings for check in checks} == dict.fromkeys(NAMES, ())
    # No row of an episode repeats another row; the next test has rows of turns.
    looked = {check.name: check.rows for check in checks if check.name != "history"}
    assert looked.pop("text") == 0
    assert set(looked.values()) == {len(rows)}


def test_rows_of_turns_are_clean_and_their_histories_are_compared():
    trees, _, tokenizer = grown_trees(2, history="window(9)")
    turns = []
    for candidate in (node.candidate for tree in trees for node in tree.nodes[1:]):
        ids, zeros = [*candidate.prompt_ids, *candidate.token_ids], [0] * len(candidate.prompt_ids)
        mask = zeros + [1] * len(candidate.token_ids)
        turns.append({"tokens": ids, "loss_mask": mask, "logprobs": [*zeros, *candidate.logprobs]})
    assert wrong(turns, tokenizer=tokenizer) == {}
    assert {check.name: check.rows for check in audit(turns, tokenizer=tokenizer)}["history"] > 5


def test_the_forms_of_other_trainers_are_understood(grown, rows):
    _, tokenizer, witness, _ = grown
    trl, labels = [], []
    for row in rows:
        ids, start, mask, logprobs = row["input_ids"], row["starts"][0], row["completion_mask"], row["logprobs"]
        trl.append({"prompt_ids": ids[:start], "completion_ids": ids[start:]})
        trl[-1] |= {"env_mask": mask[start:], "logprobs": logprobs[start:]}
        trained = [value for value, own in zip(logprobs, mask, strict=True) if own]
        labels.append({"input_ids": ids, "labels": row["labels"], "rollout_log_probs": trained})
    for form in (trl, labels):
        assert wrong(form, tokenizer=tokenizer, logprobs=witness.logprobs) == {}
        assert {check.rows for check in audit(form, tokenizer=tokenizer) if check.name == "recorded"} == {len(rows)}


def test_an_inverted_mask_is_found_by_each_check_that_can_see_it(grown, rows):
    _, tokenizer, _, _ = grown
    for row in rows:
        row["completion_mask"] = [1 - bit for bit in row["completion_mask"]]
    problems = wrong(rows, tokenizer=tokenizer)
    assert len(problems["trained"]) == len(problems["answers"]) == len(problems["recorded"]) == len(rows)
    assert all("the mask is inverted" in says for name in ("trained", "answers", "recorded") for says in problems[name])
    bare = [{"input_ids": row["input_ids"], "mask": row["completion_mask"]} for row in rows]
    assert list(wrong(bare)) == ["trained"]


def test_training_the_last_turn_only_is_found(grown, rows):
    _, tokenizer, _, _ = grown
    bare = []
    for row in rows:
        cut = [0] * row["starts"][-1] + row["completion_mask"][row["starts"][-1] :]
        bare.append({"input_ids": row["input_ids"], "mask": cut})
    problems = wrong(bare, tokenizer=tokenizer)
    assert list(problems) == ["turns"]
    assert any("only the last of 3 answers is trained" in says for says in problems["turns"])
    # Log-probabilities alone show it, too.
    without_template = wrong([{**plain, "logprobs": row["logprobs"]} for plain, row in zip(bare, rows, strict=True)])
    assert "tokens with log-probabilities are not trained" in without_template["recorded"][0]


def test_a_turn_that_another_row_trains_need_not_be_trained_again(grown, rows):
    _, tokenizer, _, _ = grown
    row = next(row for row in rows if len(row["starts"]) == 3)
    parts = []
    for start, end in zip(row["starts"], row["ends"], strict=True):
        mask = [int(start <= place < end) for place in range(len(row["input_ids"]))]
        parts.append({"input_ids": row["input_ids"], "mask": mask})
    assert wrong(parts, tokenizer=tokenizer) == {}
    assert list(wrong(parts[1:], tokenizer=tokenizer)) == ["turns"]


@pytest.mark.parametrize(("by", "word"), [(1, "late"), (-1, "early")])
def test_log_probabilities_that_are_off_by_one_are_found(grown, rows, by, word):
    _, tokenizer, witness, _ = grown
    for row in rows:
        given = row["logprobs"]
        row["logprobs"] = [0.0, *given[:-1]] if by == 1 else [*given[1:], 0.0]
    problems = wrong(rows, tokenizer=tokenizer)
    assert list(problems) == ["recorded"]
    assert all(f"one token too {word}" in says for says in problems["recorded"])
    # Log-probabilities of a forward pass stand at all tokens, so only the model shows the shift.
    dense = []
    for row in rows:
        values = witness.logprobs(row["input_ids"])
        moved = [values[1], *values[1:2], *values[1:-1]] if by == 1 else [*values[1:], values[-1]]
        dense.append({"input_ids": row["input_ids"], "mask": row["completion_mask"], "logprobs": moved})
    assert wrong(dense) == {}
    problems = wrong(dense, logprobs=witness.logprobs)
    assert all(f"one token too {word}: moved by one they are the model's" in says for says in problems["model"])
    assert len(problems["model"]) > len(rows) / 2


@pytest.mark.parametrize("by", [1, -1])
def test_a_mask_that_is_off_by_one_is_found(grown, rows, by):
    _, tokenizer, _, _ = grown
    for row in rows:
        row["completion_mask"] = [0, *row["completion_mask"][:-1]] if by == 1 else [*row["completion_mask"][1:], 0]
        del row["logprobs"]
    assert "trained tokens are not in answers" in wrong(rows, tokenizer=tokenizer)["answers"][0]


def test_log_probabilities_of_another_policy_are_found(grown, rows):
    _, _, witness, _ = grown
    for row in rows:
        row["logprobs"] = [2 * logprob for logprob in row["logprobs"]]
    problems = wrong(rows, logprobs=witness.logprobs)
    assert list(problems) == ["model"]
    assert "they differ from the model's by" in problems["model"][0]


def test_log_probabilities_that_are_missing_are_found(grown, rows):
    _, _, witness, _ = grown
    spoilt = [row for row in rows if len(row["starts"]) > 1 and row["ends"][0] - row["starts"][0] > 1]
    for row in spoilt:
        row["logprobs"][row["ends"][0] - 1] = 0.0
    assert wrong(spoilt) == {}
    problems = wrong(spoilt, logprobs=witness.logprobs)["model"]
    assert len(problems) > len(spoilt) / 2
    assert "trained tokens have no log-probability, such as the one at" in problems[0]
    for row in spoilt:
        row["logprobs"][row["starts"][0] : row["ends"][0]] = [0.0] * (row["ends"][0] - row["starts"][0])
    assert "have no log-probabilities, others of the row do" in wrong(spoilt)["recorded"][0]
    spoilt[0]["logprobs"][0] = None
    assert "holds nan, which is no log-probability" in wrong(spoilt)["lengths"][0]


def spelled_otherwise(tokenizer, ids):
    """Return other ids of the same text, with a token replaced by its bytes; None where no token allows it."""
    for place, token in enumerate(ids):
        text = tokenizer.decode([token])
        parts = [tokenizer.convert_tokens_to_ids(part) for part in tokenizer.convert_ids_to_tokens(token)]
        if len(parts) > 1 and text.strip() and None not in parts and token not in tokenizer.all_special_ids:
            return [*ids[:place], *parts, *ids[place + 1 :]]
    return None


def test_a_history_that_was_tokenised_again_is_found():
    trees, _, tokenizer = grown_trees(4, history="window(9)", strategy="naive", max_tokens=8)
    problems = []
    for tree in trees:
        first, second = (node.candidate for node in tree.nodes[1:3])
        start, end = len(first.prompt_ids), len(first.prompt_ids) + len(first.token_ids)
        assert second.prompt_ids[start:end] == first.token_ids
        other = spelled_otherwise(tokenizer, list(first.token_ids))
        if other is None:
            continue
        again = [*second.prompt_ids[:start], *other, *second.prompt_ids[end:]]
        rows = [
            {"input_ids": [*shown, *sampled], "mask": [0] * len(shown) + [1] * len(sampled)}
            for shown, sampled in ((first.prompt_ids, first.token_ids), (again, second.token_ids))
        ]
        problems.append(wrong(rows, tokenizer=tokenizer)["history"])
    assert problems
    assert all("the text of an earlier turn in other tokens" in says for (says,) in problems)


def test_messages_are_compared_with_tokens(grown):
    _, tokenizer, _, trees = grown
    rows, chats = [], []
    for tree in trees:
        (row,) = tree_rows(tree)
        (chat,) = tree_chats(tree, prompt="plain", successes=False)
        rows.append(row._asdict() | {"messages": list(chat.messages)})
        chats.append(chat)
    assert wrong(rows, tokenizer=tokenizer) == {}
    assert {check.name: check.rows for check in audit(rows, tokenizer=tokenizer)}["text"] == 3
    rows[1]["messages"] = rows[1]["messages"][:-1]
    rows[2]["messages"] = [*rows[2]["messages"][:-1], {"role": "assistant", "content": "Something else."}]
    first, second = wrong(rows, tokenizer=tokenizer)["text"]
    assert first.endswith("in messages")
    assert "'Something else.' in messages" in second


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"completion_mask": [1]}, "completion_mask has 1 entries, wanted"),
        ({"logprobs": [-0.1]}, "logprobs has 1 entries, wanted"),
        ({"completion_mask": lambda mask: [0, *mask[1:-1], 2]}, "completion_mask holds [2], wanted only 0 and 1"),
        ({"logprobs": lambda given: [0.5, *given[1:]]}, "logprobs holds 0.5, which is no log-probability"),
        ({"logprobs": lambda given: [float("nan"), *given[1:]]}, "logprobs holds nan"),
        ({"input_ids": lambda ids: [-1, *ids[1:]]}, "token ids are not whole numbers from 0"),
        ({"completion_mask": lambda mask: [0] * len(mask)}, "nothing is trained"),
        ({"completion_mask": lambda mask: [1] * len(mask)}, "every token is trained"),
    ],
)
def test_contradictory_columns_are_found_in_their_row(rows, change, says):
    (name, new) = next(iter(change.items()))
    rows[1][name] = new(rows[1][name]) if callable(new) else new
    findings = [(finding.row, finding.says) for check in audit(rows) for finding in check.findings]
    assert findings[0][0] == 1
    assert says in findings[0][1]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"text": "hello"}, "record 0: wanted token ids in one of"),
        ({"input_ids": [1, 2]}, "record 0: wanted a mask in one of"),
        *(({"input_ids": ids, "mask": [0, None]}, "record 0: wanted columns of numbers") for ids in ([1, 2], 3)),
        ({"input_ids": [1, 2], "mask": [0, math.inf]}, "record 0: wanted columns of numbers"),
        ({"input_ids": [1, 2], "mask": [0, 1], "logprobs": [0, 10**400]}, "record 0: wanted columns of numbers"),
        *(({"input_ids": [1, 2], "mask": [0, 1], "messages": bad}, "record 0: wanted messages") for bad in (["a"], 5)),
    ],
)
def test_records_that_cannot_be_read_are_refused_with_their_file(record, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        audit([record])
    (tmp_path / "rows.jsonl").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=f"rows.jsonl: {message}"):
        audit_file(tmp_path / "rows.jsonl")


def test_a_tokenizer_without_a_template_is_refused(grown, rows):
    tokenizer = copy.deepcopy(grown[1])
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="the tokenizer has no chat template"):
        audit(rows, tokenizer=tokenizer)
