"""Rows of anybody's training, under the names that trainers give their columns, as rows that can be audited."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from tsr_gym.errors import ConfigError, shown

# Names of columns, those of this package first; then those of TRL, verl, SkyRL, slime and Hugging Face collators.
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
# What Hugging Face's losses leave out.
IGNORED = -100


class AuditRow(NamedTuple):
    """A training row.

    Attributes:
        number: Its place in the file, from 0.
        ids: `[T]` token ids, prompt included.
        mask: `[T]` 1 where a token is trained.
        logprobs: `[T]` what was recorded of each token, 0 where nothing was; None where there is no such column.
        messages: The conversation as text; None where there is no such column.
        problems: What does not fit together; the row is then left out of all other checks.
    """

    number: int
    ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    messages: Sequence[Mapping[str, Any]] | None
    problems: tuple[str, ...]


def read_row(number: int, record: Mapping[str, Any]) -> AuditRow:
    """Return a record as a row, with what is wrong with its lengths and values.

    Raises:
        ConfigError: It has no column of token ids, or none that says what is trained.
    """
    ids, first = _ids(number, record)
    problems = [] if all(type(one) is int and one >= 0 for one in ids) else ["token ids are not whole numbers from 0"]
    mask = _mask(number, record, len(ids), first, problems)
    logprobs = _logprobs(record, mask, first, problems)
    messages = record.get("messages")
    return AuditRow(number, tuple(ids), tuple(mask), logprobs, messages, tuple(problems))


def _ids(number: int, record: Mapping[str, Any]) -> tuple[list[int], int]:
    """Return the token ids of a record, and where its completion begins; 0 where prompt and completion are one."""
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
        given = [int(one) for one in record[name]]
    elif record.get(LABELS) is not None:
        name, given = LABELS, [int(one != IGNORED) for one in record[LABELS]]
    elif first:
        # Without a mask, trainers train the whole completion.
        return [0] * first + [1] * (length - first)
    else:
        raise ConfigError(f"record {number}: wanted what is trained in one of {[*MASKS, LABELS]}, got {sorted(record)}")
    if set(given) - {0, 1}:
        problems.append(f"{name} holds {sorted(set(given) - {0, 1})[:3]} beside 0 and 1")
    return _placed(name, given, length, first, problems, 0)


def _logprobs(
    record: Mapping[str, Any], mask: Sequence[int], first: int, problems: list[str]
) -> tuple[float, ...] | None:
    name = _column(record, LOGPROBS)
    if name is None:
        return None
    given = [float(one) for one in record[name]]
    if bad := [one for one in given if not isfinite(one) or one > 1e-6]:
        problems.append(f"{name} holds {bad[0]}, which is no log-probability")
    if len(given) not in (len(mask), len(mask) - first) and len(given) == sum(mask):
        # A list of the sampled tokens alone.
        values = iter(given)
        return tuple(next(values) if one else 0.0 for one in mask)
    return tuple(_placed(name, given, len(mask), first, problems, 0.0))


def _placed(name: str, given: list[Any], length: int, first: int, problems: list[str], empty: Any) -> list[Any]:
    """Return a column beside all tokens, where it was given for them or for those of the completion."""
    if len(given) == length:
        return given
    if first and len(given) == length - first:
        return [empty] * first + given
    wanted = f"{length}" + (f" or {length - first}" if first else "")
    problems.append(f"{name} has {len(given)} entries, wanted {wanted}")
    return [empty] * length


def _column(record: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if record.get(name) is not None), None)


_USER, _SAID = "question", "answer"


class Marks(NamedTuple):
    """What stands around an answer.

    Attributes:
        opening: Token ids that begin an answer.
        ends: Token ids that end one.
    """

    opening: tuple[int, ...]
    ends: tuple[int, ...]


class Answer(NamedTuple):
    """What a model said or was made to begin with.

    Attributes:
        start: Where it begins.
        end: Where it ends, excluded; its end token is part of it.
        closed: Whether it has an end token, its own or one that the template wrote.
    """

    start: int
    end: int
    closed: bool


def marks_of(tokenizer: Any) -> Marks:
    """Return what stands around the answers of a tokenizer's chat template.

    Raises:
        ConfigError: It has no chat template, or one that does not tell where answers begin.
    """
    if not tokenizer.chat_template:
        raise ConfigError("the tokenizer has no chat template, so nobody can tell where answers begin: leave it out")
    user, said = {"role": "user", "content": _USER}, {"role": "assistant", "content": _SAID}

    def render(messages: list[dict[str, str]], ask: bool) -> str:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask))

    asked = render([user], True).removeprefix(render([user], False))
    after = render([user, said], False).rpartition(_SAID)[2]
    opening, closing = _encode(tokenizer, asked), _encode(tokenizer, after)
    if not opening:
        raise ConfigError("the chat template does not tell where answers begin: leave the tokenizer out")
    ends = {tokenizer.eos_token_id, *closing[:1]} - {None}
    return Marks(tuple(opening), tuple(sorted(ends)))


def answers_in(ids: Sequence[int], marks: Marks) -> list[Answer]:
    """Return the answers of a row, in order; one that has no end goes on to the end of the row."""
    found = []
    place, width = 0, len(marks.opening)
    while place + width <= len(ids):
        if tuple(ids[place : place + width]) != marks.opening:
            place += 1
            continue
        start = place + width
        stop = next((at for at in range(start, len(ids)) if ids[at] in marks.ends), None)
        place = len(ids) if stop is None else stop + 1
        if place > start:
            found.append(Answer(start, place, stop is not None))
    return found


def _encode(tokenizer: Any, text: str) -> list[int]:
    return [int(one) for one in tokenizer(text, add_special_tokens=False)["input_ids"]]
