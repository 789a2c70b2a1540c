"""Rows for the audit: training rows of any trainer, and the places of the answers in them; torch-free."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from tsr_gym.errors import ConfigError, shown

# Names of columns: those of this package first, then those of TRL, verl, SkyRL, slime and Hugging Face collators.
IDS = ("input_ids", "token_ids", "tokens")
PROMPTS = ("prompt_ids", "prompt_token_ids", "prompts")
COMPLETIONS = ("completion_ids", "response_ids", "response_token_ids", "responses")
MASKS = (
    *("mask", "loss_mask", "loss_masks", "assistant_masks", "env_mask", "tool_mask", "response_mask"),
    *("completion_mask", "sampled"),
)
LOGPROBS = (
    *("logprobs", "old_logprobs", "rollout_logprobs", "rollout_log_probs", "response_logprobs"),
    "sampling_per_token_logps",
)
LABELS = "labels"
# The label that Hugging Face's losses ignore.
IGNORED = -100


class AuditRow(NamedTuple):
    """A training row.

    Attributes:
        number: Its place in the file, from 0.
        ids: `[T]` token ids, prompt included.
        mask: `[T]` 1 where a token is trained.
        logprobs: `[T]` recorded log-probability of each token, 0 where none was recorded; None without such a column.
        messages: The conversation as text; None without such a column.
        problems: Contradictions between the columns; a row with problems is left out of all other checks.
    """

    number: int
    ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    messages: Sequence[Mapping[str, Any]] | None
    problems: tuple[str, ...]


def read_row(number: int, record: Mapping[str, Any]) -> AuditRow:
    """Return a record as a row, with the problems of its lengths and values.

    Raises:
        ConfigError: The record has no column of token ids, or none that marks the trained tokens.
    """
    ids, first = _ids(number, record)
    whole = all(type(token) is int and token >= 0 for token in ids)
    problems = [] if whole else ["token ids are not whole numbers from 0"]
    mask = _mask(number, record, len(ids), first, problems)
    logprobs = _logprobs(record, mask, first, problems)
    messages = record.get("messages")
    return AuditRow(number, tuple(ids), tuple(mask), logprobs, messages, tuple(problems))


def _ids(number: int, record: Mapping[str, Any]) -> tuple[list[int], int]:
    """Return the token ids of a record and the start of its completion; 0 where one column holds both."""
    if (whole := _column(record, IDS)) is not None:
        return list(record[whole]), 0
    prompt, completion = _column(record, PROMPTS), _column(record, COMPLETIONS)
    if prompt is None or completion is None:
        raise ConfigError(
            f"record {number}: wanted token ids in one of {list(IDS)}, or in {list(PROMPTS)} with one of "
            f"{list(COMPLETIONS)}, got columns {shown(sorted(record))}"
        )
    return [*record[prompt], *record[completion]], len(record[prompt])


def _mask(number: int, record: Mapping[str, Any], length: int, first: int, problems: list[str]) -> list[int]:
    name = _column(record, MASKS)
    if name is not None:
        given = [int(value) for value in record[name]]
    elif record.get(LABELS) is not None:
        name, given = LABELS, [int(label != IGNORED) for label in record[LABELS]]
    elif first:
        # Trainers train the whole completion where there is no mask.
        return [0] * first + [1] * (length - first)
    else:
        raise ConfigError(f"record {number}: wanted a mask in one of {[*MASKS, LABELS]}, got {sorted(record)}")
    if set(given) - {0, 1}:
        problems.append(f"{name} holds {sorted(set(given) - {0, 1})[:3]}, wanted only 0 and 1")
    return _placed(name, given, length, first, problems, 0)


def _logprobs(
    record: Mapping[str, Any], mask: Sequence[int], first: int, problems: list[str]
) -> tuple[float, ...] | None:
    name = _column(record, LOGPROBS)
    if name is None:
        return None
    given = [float(value) for value in record[name]]
    if bad := [value for value in given if not isfinite(value) or value > 1e-6]:
        problems.append(f"{name} holds {bad[0]}, which is no log-probability")
    # Some trainers keep a list for the sampled tokens only.
    if len(given) not in (len(mask), len(mask) - first) and len(given) == sum(mask):
        values = iter(given)
        return tuple(next(values) if trained else 0.0 for trained in mask)
    return tuple(_placed(name, given, len(mask), first, problems, 0.0))


def _placed(name: str, given: list[Any], length: int, first: int, problems: list[str], empty: Any) -> list[Any]:
    """Return a column for all tokens, from one for all of them or for those of the completion."""
    if len(given) == length:
        return given
    if first and len(given) == length - first:
        return [empty] * first + given
    wanted = f"{length}" + (f" or {length - first}" if first else "")
    problems.append(f"{name} has {len(given)} entries, wanted {wanted}")
    return [empty] * length


def _column(record: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if record.get(name) is not None), None)


_QUESTION, _ANSWER = "question", "answer"


class Marks(NamedTuple):
    """The tokens around an answer.

    Attributes:
        opening: Token ids that stand before an answer.
        ends: Token ids that end an answer.
    """

    opening: tuple[int, ...]
    ends: tuple[int, ...]


class Answer(NamedTuple):
    """The place of an answer in a row, with a forced beginning, if it has one.

    Attributes:
        start: Index of its first token.
        end: Index after its last token; its end token is part of it.
        closed: Whether it has an end token, sampled or written by the template.
    """

    start: int
    end: int
    closed: bool


def marks_of(tokenizer: Any) -> Marks:
    """Return the tokens around the answers of a tokenizer's chat template.

    Raises:
        ConfigError: The tokenizer has no chat template, or one that does not mark the start of answers.
    """
    if not tokenizer.chat_template:
        raise ConfigError("the tokenizer has no chat template, so the start of answers is unknown: leave it out")
    user, assistant = {"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _ANSWER}

    def render(messages: list[dict[str, str]], ask: bool) -> str:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask))

    # The generation prompt stands before each answer; the text after the answer begins with the template's end token.
    before = render([user], True).removeprefix(render([user], False))
    after = render([user, assistant], False).rpartition(_ANSWER)[2]
    opening, closing = _encode(tokenizer, before), _encode(tokenizer, after)
    if not opening:
        raise ConfigError("the chat template does not mark the start of answers: leave the tokenizer out")
    ends = {tokenizer.eos_token_id, *closing[:1]} - {None}
    return Marks(tuple(opening), tuple(sorted(ends)))


def answers_in(ids: Sequence[int], marks: Marks) -> list[Answer]:
    """Return the answers of a row, in order; an answer without an end token ends with the row."""
    answers = []
    place, width = 0, len(marks.opening)
    while place + width <= len(ids):
        if tuple(ids[place : place + width]) != marks.opening:
            place += 1
            continue
        start = place + width
        stop = next((at for at in range(start, len(ids)) if ids[at] in marks.ends), None)
        place = len(ids) if stop is None else stop + 1
        if place > start:
            answers.append(Answer(start, place, stop is not None))
    return answers


def _encode(tokenizer: Any, text: str) -> list[int]:
    return [int(token) for token in tokenizer(text, add_special_tokens=False)["input_ids"]]
