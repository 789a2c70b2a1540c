"""Audit: check that training rows train all sampled tokens and no others; torch-free without a model.

A check states a property, the number of rows in which it could be checked, and the rows that violate it. The rows may
come from any trainer; `read_row` knows the names of their columns.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.errors import ConfigError, shown
from tsr_gym.records import read_records
from tsr_gym.tree import Meter

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
    if messages is not None and not (
        isinstance(messages, list | tuple) and all(isinstance(each, dict) for each in messages)
    ):
        raise ConfigError(f"record {number}: wanted messages as a list of objects, got {shown(messages)}")
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
    given = [nan if value is None else float(value) for value in record[name]]
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


# Returns the log-probability of each token of a row under a model, 0 for the first.
Logprobs = Callable[[Sequence[int]], Sequence[float]]


class Finding(NamedTuple):
    """A row that violates a property.

    Attributes:
        row: Its number in the file, from 0.
        says: The observation and its likely cause.
    """

    row: int
    says: str


class Check(NamedTuple):
    """The result of a check.

    Attributes:
        name: In a word or two.
        holds: The property that a correct row has.
        rows: Number of rows in which it could be checked; 0 where a column, the tokenizer or the model is missing.
        findings: The rows that violate it, each once.
    """

    name: str
    holds: str
    rows: int
    findings: tuple[Finding, ...]


def audit_file(
    path: Path,
    *,
    tokenizer: Any = None,
    logprobs: Logprobs | None = None,
    tolerance: float = 0.1,
    watch: Meter = lambda stage, done, total: None,
) -> list[Check]:
    """Return the checks of a file of rows, JSON lines or Parquet, as `audit` does."""
    records = read_records(path, error=ConfigError)
    try:
        return audit(records, tokenizer=tokenizer, logprobs=logprobs, tolerance=tolerance, watch=watch)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def audit(
    records: Sequence[Mapping[str, Any]],
    *,
    tokenizer: Any = None,
    logprobs: Logprobs | None = None,
    tolerance: float = 0.1,
    watch: Meter = lambda stage, done, total: None,
) -> list[Check]:
    """Return the results of all checks of some training rows.

    Args:
        records: Rows with token ids, a mask of the trained ones, and perhaps log-probabilities and messages, under any
            of the names of `read_row`.
        tokenizer: With the chat template of the rows, to separate answers from prompts; None skips these checks.
        logprobs: Of the model that sampled the rows, at its sampling temperature; None skips this check.
        tolerance: Largest mean difference between recorded log-probabilities and the model's, in nats.
        watch: See `Meter`; counts the rows that the model has scored.

    Raises:
        ConfigError: A record has no token ids, or no mask.
    """
    rows = [_read(number, record) for number, record in enumerate(records)]
    whole = [row for row in rows if not row.problems]
    recorded = [row for row in whole if row.logprobs is not None and any(row.logprobs)]
    checks = [
        _check("lengths", "ids, mask and log-probabilities fit together", rows, lambda row: "; ".join(row.problems)),
        _check("trained", "something is trained, and never the first token", whole, _trained),
        _check("recorded", "only trained tokens have log-probabilities, and each at its place", recorded, _recorded),
    ]
    checks += _by_answers(whole, None if tokenizer is None else marks_of(tokenizer), tokenizer)
    fits = partial(_fits, logprobs=logprobs, tolerance=tolerance)
    asked = [] if logprobs is None else recorded
    return [*checks, _check("model", "log-probabilities are those of the model", asked, fits, watch)]


def _read(number: int, record: Mapping[str, Any]) -> AuditRow:
    try:
        return read_row(number, record)
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"record {number}: wanted columns of numbers, got {shown(record)} ({error})") from error


def _check(
    name: str,
    holds: str,
    rows: Sequence[AuditRow],
    violation: Callable[[AuditRow], str],
    watch: Meter = lambda stage, done, total: None,
) -> Check:
    findings = []
    for done, row in enumerate(rows, 1):
        if says := violation(row):
            findings.append(Finding(row.number, says))
        watch("rows that the model reads", done, len(rows))
    return Check(name, holds, len(rows), tuple(findings))


def _trained(row: AuditRow) -> str:
    if not any(row.mask):
        return "nothing is trained"
    if row.mask[0]:
        all_of_it = "every token is" if all(row.mask) else "its first token is"
        return f"{all_of_it} trained, which no model sampled: the mask is inverted, or the prompt is not masked"
    return ""


def _recorded(row: AuditRow) -> str:
    assert row.logprobs is not None
    trained = {place for place, is_trained in enumerate(row.mask) if is_trained}
    rated = {place for place, logprob in enumerate(row.logprobs) if logprob}
    # Log-probabilities of all tokens of a stretch come from a forward pass, so they do not mark the sampled tokens.
    dense = len(rated) == max(rated) - min(rated) + 1
    if rated <= trained or (dense and trained <= rated):
        return _unrated(row, rated)
    for by, word in ((1, "early"), (-1, "late")):
        if {place + by for place in rated} <= trained:
            return f"its log-probabilities stand one token too {word}"
    if not rated & trained:
        return "tokens with log-probabilities are not trained, and trained tokens have none: the mask is inverted"
    excess = rated - trained
    return f"{len(excess)} tokens with log-probabilities are not trained, such as the one at {min(excess)}"


def _unrated(row: AuditRow, rated: set[int]) -> str:
    """Return where an answer of several tokens has no log-probability although others of its row have."""
    starts = [place for place, is_trained in enumerate(row.mask) if is_trained and not row.mask[place - 1]]
    for start in starts:
        end = next((place for place in range(start, len(row.mask)) if not row.mask[place]), len(row.mask))
        if end - start > 1 and rated.isdisjoint(range(start, end)):
            return f"the {end - start} trained tokens from {start} on have no log-probabilities, others of the row do"
    return ""


def _by_answers(rows: Sequence[AuditRow], marks: Marks | None, tokenizer: Any) -> list[Check]:
    """Return the checks that need the places of the answers."""
    answers = {} if marks is None else {row.number: answers_in(row.ids, marks) for row in rows}
    answered = [row for row in rows if answers.get(row.number)]
    # An answer that stands in the prompt of one row may be trained in another row.
    trained = {
        _content(row, answer) for row in answered for answer in answers[row.number] if any(_mask_of(row, answer))
    }
    texts = [row for row in answered if row.messages is not None]
    return [
        _check("answers", "trained tokens lie in answers", answered, lambda row: _outside(row, answers[row.number])),
        _check("turns", "every answer is trained", answered, lambda row: _untrained(row, answers[row.number], trained)),
        _check("text", "tokens match the messages", texts, lambda row: _text(row, answers[row.number], tokenizer)),
        _histories(answered, tokenizer),
    ]


def _mask_of(row: AuditRow, answer: Answer) -> tuple[int, ...]:
    return row.mask[answer.start : answer.end]


def _content(row: AuditRow, answer: Answer) -> tuple[int, ...]:
    """Return the tokens of an answer without its end token, which may be the model's or the template's."""
    return row.ids[answer.start : answer.end - answer.closed]


def _outside(row: AuditRow, answers: Sequence[Answer]) -> str:
    inside = {place for answer in answers for place in range(answer.start, answer.end)}
    trained = [place for place, is_trained in enumerate(row.mask) if is_trained]
    outside = [place for place in trained if place not in inside]
    contents = [bit for answer in answers for bit in row.mask[answer.start : answer.end - answer.closed]]
    if 2 * len(outside) > len(trained) and 2 * sum(contents) < len(contents):
        return "trained tokens lie outside of the answers, which are not trained: the mask is inverted"
    if outside:
        return f"{len(outside)} of {len(trained)} trained tokens are not in answers, such as the one at {outside[0]}"
    for number, answer in enumerate(answers):
        mask = _mask_of(row, answer)
        # A forced beginning is not sampled, nor is the end token of an answer that was cut off.
        body = mask[mask.index(1) : -1] if 1 in mask else ()
        if 0 in body:
            return f"answer {number} is trained in parts: a token between trained tokens is not trained"
    return ""


def _untrained(row: AuditRow, answers: Sequence[Answer], trained: set[tuple[int, ...]]) -> str:
    missing = [
        number
        for number, answer in enumerate(answers)
        if not any(_mask_of(row, answer)) and _content(row, answer) not in trained
    ]
    if not missing:
        return ""
    if missing == list(range(len(answers) - 1)) and any(_mask_of(row, answers[-1])):
        return f"only the last of {len(answers)} answers is trained, here and in all other rows"
    return f"answer {missing[0]} of {len(answers)} is trained in no row"


def _text(row: AuditRow, answers: Sequence[Answer], tokenizer: Any) -> str:
    messages = row.messages or ()
    texts = [str(message.get("content", "")) for message in messages if message.get("role") == "assistant"]
    if len(texts) != len(answers):
        return f"{len(answers)} answers in tokens, {len(texts)} in messages"
    for number, (answer, text) in enumerate(zip(answers, texts, strict=True)):
        decoded = str(tokenizer.decode(_content(row, answer), skip_special_tokens=True))
        if decoded.strip() != text.strip():
            return f"answer {number} is {decoded[:40]!r} in tokens, {text[:40]!r} in messages"
    return ""


def _histories(rows: Sequence[AuditRow], tokenizer: Any) -> Check:
    """Return the check that a row which repeats the text of another row repeats its tokens."""
    lasts = [max((place for place, trained in enumerate(row.mask) if trained), default=-1) for row in rows]
    heads = [row.ids[: last + 1] for row, last in zip(rows, lasts, strict=True)]
    texts = [str(tokenizer.decode(ids)) for ids in heads]
    findings, compared = [], 0
    # In sorted order, the texts that begin with a text directly follow it. So a stack of the texts that the current one
    # begins with finds all pairs in one pass.
    order = sorted(range(len(rows)), key=lambda index: texts[index])
    above: list[int] = []
    for index in order:
        while above and not texts[index].startswith(texts[above[-1]]):
            above.pop()
        shorter = [heads[other] for other in above if texts[other] and len(texts[other]) < len(texts[index])]
        compared += bool(shorter)
        place = _breaks(heads[index], rows[index].mask, shorter)
        if place is not None:
            says = f"it repeats the text of an earlier turn in other tokens from {place} on: it was tokenised again"
            findings.append(Finding(rows[index].number, says))
        above.append(index)
    return Check("history", "text of earlier turns is repeated in its tokens", compared, tuple(sorted(findings)))


def _breaks(ids: Sequence[int], mask: Sequence[int], shorter: Iterable[Sequence[int]]) -> int | None:
    """Return where a row's prompt departs from the tokens of all rows whose text it repeats; None where it does not.

    A text has several tokenisations, and trained tokens were sampled in one of them, so only a prompt can be wrong.
    """
    places = []
    for other in shorter:
        place = next((at for at, (own, token) in enumerate(zip(ids, other, strict=False)) if own != token), None)
        if place is None:
            return None
        places.append(place)
    wrong = [place for place in places if not mask[place]]
    return max(wrong) if wrong and len(wrong) == len(places) else None


def _fits(row: AuditRow, *, logprobs: Logprobs | None, tolerance: float) -> str:
    """Return how recorded log-probabilities differ from a model's, at their places and moved by one; empty if not."""
    assert logprobs is not None
    model, recorded = logprobs(row.ids), row.logprobs or ()
    places = [place for place, trained in enumerate(row.mask) if trained]

    def mean_difference(by: int) -> float:
        pairs = [(recorded[at + by], model[at]) for at in places if 0 <= at + by < len(model)]
        return sum(abs(own - expected) for own, expected in pairs) / max(len(pairs), 1)

    difference = mean_difference(0)
    # A recorded 0 is a token that was certain, or one whose log-probability is missing.
    unrated = [at for at in places if recorded[at] == 0 and model[at] < -tolerance]
    if difference <= tolerance and not unrated:
        return ""
    for by, word in ((-1, "early"), (1, "late")):
        if len(places) > 2 and mean_difference(by) <= min(tolerance, difference / 4):
            return f"its log-probabilities stand one token too {word}: moved by one they are the model's"
    if unrated:
        return (
            f"{len(unrated)} trained tokens have no log-probability, such as the one at {unrated[0]}, which the model "
            f"gives {model[unrated[0]]:.3g}"
        )
    return f"they differ from the model's by {difference:.3g} on average, wanted at most {tolerance:g}"


class Witness(NamedTuple):
    """The model that sampled some rows.

    Attributes:
        logprobs: See `Logprobs`.
        tokenizer: The model's.
    """

    logprobs: Callable[[Sequence[int]], list[float]]
    tokenizer: Any


def witness(folder: Path, *, temperature: float = 1.0, device: str = "auto") -> Witness:
    """Return the log-probabilities and the tokenizer of a model.

    Args:
        folder: A Hugging Face model.
        temperature: At which the rows were sampled.
        device: Of the computation.

    Raises:
        CheckpointError: The model cannot be read.
        ConfigError: The temperature is not above 0.
    """
    if not temperature > 0:
        raise ConfigError(f"wanted a temperature above 0, got {temperature}")
    # Only this check needs torch.
    import torch

    from tsr_gym.agents.models.language_model import load_policy, pick_device
    from tsr_gym.agents.models.logprobs import token_logprobs

    policy = load_policy(folder, device=pick_device(device))
    policy.model.eval()

    def logprobs(row: Sequence[int]) -> list[float]:
        vocabulary, context = policy.model.config.vocab_size, policy.model.config.max_position_embeddings
        if len(row) > context or max(row) >= vocabulary:
            raise ConfigError(
                f"the model reads {context} tokens below {vocabulary}, got {len(row)} up to {max(row)}: not its rows"
            )
        ids = torch.tensor([list(row)], device=policy.model.device)
        present = torch.ones_like(ids, dtype=torch.bool)
        # The first token has no context, so it has no log-probability.
        rated = present.clone()
        rated[:, 0] = False
        with torch.no_grad():
            logprobs, _ = token_logprobs(policy.model, ids, present, rated, temperature=temperature)
        values: list[float] = logprobs[0].tolist()
        return values

    return Witness(logprobs, policy.tokenizer)
