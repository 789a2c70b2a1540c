"""Audit: whether training rows train what was sampled, all of it, and nothing else; torch-free but for a model.

A check says what holds in every row where it could look, and names the rows where it does not.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.agents.bridges.audit_rows import Answer, AuditRow, Marks, answers_in, marks_of, read_row
from tsr_gym.errors import ConfigError
from tsr_gym.records import read_records

# From token ids of a row to the log-probability of each under a model, 0 for the first.
Logprobs = Callable[[Sequence[int]], Sequence[float]]
# Called with how many rows are done, and how many there are.
Watch = Callable[[int, int], None]


class Finding(NamedTuple):
    """What is wrong with a row.

    Attributes:
        row: Its number in the file, from 0.
        says: What came, and what it means.
    """

    row: int
    says: str


class Check(NamedTuple):
    """What a check found.

    Attributes:
        name: In a word or two.
        holds: What is true of every row in which nothing is wrong.
        rows: Rows in which it could look; 0 where what it needs is not there.
        findings: What is wrong, a row at most once.
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
    watch: Watch = lambda done, total: None,
) -> list[Check]:
    """Return the checks of a file of rows, JSON lines or Parquet; see `audit`."""
    records = read_records(path, error=ConfigError)
    return audit(records, tokenizer=tokenizer, logprobs=logprobs, tolerance=tolerance, watch=watch)


def audit(
    records: Sequence[Mapping[str, Any]],
    *,
    tokenizer: Any = None,
    logprobs: Logprobs | None = None,
    tolerance: float = 0.1,
    watch: Watch = lambda done, total: None,
) -> list[Check]:
    """Return what several checks find in training rows.

    Args:
        records: Rows with token ids, what is trained of them, and perhaps log-probabilities and messages, under any of
            the names of `read_row`.
        tokenizer: With the chat template that the rows were made by, to tell answers from prompts; None to do without.
        logprobs: Of the model that sampled the rows, at the temperature at which it did; None to do without.
        tolerance: Largest mean difference between recorded log-probabilities and the model's, in nats.
        watch: Told of how many rows the model has been asked.

    Raises:
        ConfigError: A record has no token ids, or does not say what is trained.
    """
    rows = [_read(number, record) for number, record in enumerate(records)]
    whole = [row for row in rows if not row.problems]
    recorded = [row for row in whole if row.logprobs is not None and any(row.logprobs)]
    checks = [
        _check("lengths", "ids, mask and log-probabilities fit together", rows, _lengths),
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
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"record {number}: wanted columns of numbers, got {error}") from error


def _check(
    name: str,
    holds: str,
    rows: Sequence[AuditRow],
    look: Callable[[AuditRow], str],
    watch: Watch = lambda done, total: None,
) -> Check:
    findings = []
    for done, row in enumerate(rows, 1):
        if says := look(row):
            findings.append(Finding(row.number, says))
        watch(done, len(rows))
    return Check(name, holds, len(rows), tuple(findings))


def _lengths(row: AuditRow) -> str:
    return "; ".join(row.problems)


def _trained(row: AuditRow) -> str:
    if not any(row.mask):
        return "nothing is trained"
    if row.mask[0]:
        all_of_it = "every token is" if all(row.mask) else "its first token is"
        return f"{all_of_it} trained, which no model sampled: the mask is inverted, or the prompt is not masked"
    return ""


def _recorded(row: AuditRow) -> str:
    assert row.logprobs is not None
    trained = {place for place, one in enumerate(row.mask) if one}
    has = {place for place, one in enumerate(row.logprobs) if one}
    # Where there are some for all tokens of a stretch, they come from a forward pass and do not say what was sampled.
    dense = len(has) == max(has) - min(has) + 1
    if has <= trained or (dense and trained <= has):
        return ""
    for by, word in ((1, "early"), (-1, "late")):
        if {place + by for place in has} <= trained:
            return f"its log-probabilities stand one token too {word}"
    if not has & trained:
        return "what has log-probabilities is not trained, and what is trained has none: the mask is inverted"
    return (
        f"{len(has - trained)} tokens with log-probabilities are not trained, such as the one at {min(has - trained)}"
    )


def _by_answers(rows: Sequence[AuditRow], marks: Marks | None, tokenizer: Any) -> list[Check]:
    """Return the checks that need to know where the model spoke."""
    found = {} if marks is None else {row.number: answers_in(row.ids, marks) for row in rows}
    spoken = [row for row in rows if found.get(row.number)]
    known = {_said(row, answer) for row in spoken for answer in found[row.number] if any(_mask_of(row, answer))}
    texts = [row for row in spoken if row.messages is not None]
    return [
        _check("answers", "what is trained lies in answers", spoken, lambda row: _outside(row, found[row.number])),
        _check("turns", "every answer is trained", spoken, lambda row: _untrained(row, found[row.number], known)),
        _check("text", "tokens are what messages say", texts, lambda row: _text(row, found[row.number], tokenizer)),
        _histories(spoken, tokenizer),
    ]


def _mask_of(row: AuditRow, answer: Answer) -> tuple[int, ...]:
    return row.mask[answer.start : answer.end]


def _said(row: AuditRow, answer: Answer) -> tuple[int, ...]:
    """Return an answer without its end token, which may be the model's own or the template's."""
    return row.ids[answer.start : answer.end - answer.closed]


def _outside(row: AuditRow, answers: Sequence[Answer]) -> str:
    inside = {place for answer in answers for place in range(answer.start, answer.end)}
    trained = [place for place, one in enumerate(row.mask) if one]
    outside = [place for place in trained if place not in inside]
    said = [one for answer in answers for one in row.mask[answer.start : answer.end - answer.closed]]
    if 2 * len(outside) > len(trained) and 2 * sum(said) < len(said):
        return "what is trained lies outside of the answers, which are not: the mask is inverted"
    if outside:
        return f"{len(outside)} of {len(trained)} trained tokens are not in answers, such as the one at {outside[0]}"
    for number, answer in enumerate(answers):
        mask = _mask_of(row, answer)
        # A forced beginning is not sampled, nor is the end of an answer that was cut off.
        body = mask[mask.index(1) : -1] if 1 in mask else ()
        if 0 in body:
            return f"answer {number} is trained in parts: a token between trained ones is not"
    return ""


def _untrained(row: AuditRow, answers: Sequence[Answer], known: set[tuple[int, ...]]) -> str:
    missing = [
        number
        for number, answer in enumerate(answers)
        if not any(_mask_of(row, answer)) and _said(row, answer) not in known
    ]
    if not missing:
        return ""
    if missing == list(range(len(answers) - 1)) and any(_mask_of(row, answers[-1])):
        return f"only the last of {len(answers)} answers is trained, here and in all other rows"
    return f"answer {missing[0]} of {len(answers)} is trained in no row"


def _text(row: AuditRow, answers: Sequence[Answer], tokenizer: Any) -> str:
    said = [str(one.get("content", "")) for one in row.messages or () if one.get("role") == "assistant"]
    if len(said) != len(answers):
        return f"{len(answers)} answers in tokens, {len(said)} in messages"
    for number, (answer, text) in enumerate(zip(answers, said, strict=True)):
        decoded = str(tokenizer.decode(_said(row, answer), skip_special_tokens=True))
        if decoded.strip() != text.strip():
            return f"answer {number} is {decoded[:40]!r} in tokens, {text[:40]!r} in messages"
    return ""


def _histories(rows: Sequence[AuditRow], tokenizer: Any) -> Check:
    """Return the check that a row which repeats what another one says repeats its tokens."""
    lasts = [max((place for place, one in enumerate(row.mask) if one), default=-1) for row in rows]
    said = [row.ids[: last + 1] for row, last in zip(rows, lasts, strict=True)]
    texts = [str(tokenizer.decode(ids)) for ids in said]
    findings, looked = [], 0
    # Whatever begins with a text stands behind it in sorted order, with nothing else between.
    order = sorted(range(len(rows)), key=lambda index: texts[index])
    above: list[int] = []
    for index in order:
        while above and not texts[index].startswith(texts[above[-1]]):
            above.pop()
        shorter = [said[other] for other in above if texts[other] and len(texts[other]) < len(texts[index])]
        looked += bool(shorter)
        place = _breaks(said[index], rows[index].mask, shorter)
        if place is not None:
            says = f"it repeats the text of an earlier turn in other tokens from {place} on: it was tokenised again"
            findings.append(Finding(rows[index].number, says))
        above.append(index)
    return Check("history", "text of earlier turns is repeated in its own tokens", looked, tuple(sorted(findings)))


def _breaks(ids: Sequence[int], mask: Sequence[int], shorter: Iterable[Sequence[int]]) -> int | None:
    """Return where a row's prompt leaves the tokens of every row whose text it repeats; None where it does not.

    Trained tokens were sampled, in whatever way a text can be spelled, so only a prompt can be spelled wrongly.
    """
    places = []
    for other in shorter:
        place = next((at for at, (one, its) in enumerate(zip(ids, other, strict=False)) if one != its), None)
        if place is None:
            return None
        places.append(place)
    wrong = [place for place in places if not mask[place]]
    return max(wrong) if wrong and len(wrong) == len(places) else None


def _fits(row: AuditRow, *, logprobs: Logprobs | None, tolerance: float) -> str:
    """Compare recorded log-probabilities with a model's, at their places and moved by one."""
    assert logprobs is not None
    model, recorded = logprobs(row.ids), row.logprobs or ()
    places = [place for place, one in enumerate(row.mask) if one]

    def off(by: int) -> float:
        pairs = [(recorded[at + by], model[at]) for at in places if 0 <= at + by < len(model)]
        return sum(abs(one - its) for one, its in pairs) / max(len(pairs), 1)

    here = off(0)
    if here <= tolerance:
        return ""
    for by, word in ((-1, "early"), (1, "late")):
        if len(places) > 2 and off(by) <= min(tolerance, here / 4):
            return f"its log-probabilities stand one token too {word}: moved by one they are the model's"
    return f"they differ from the model's by {here:.3g} on average, wanted at most {tolerance:g}"


class Witness(NamedTuple):
    """A model that is asked about rows.

    Attributes:
        logprobs: From token ids to the log-probability of each, 0 for the first.
        tokenizer: The model's.
    """

    logprobs: Callable[[Sequence[int]], list[float]]
    tokenizer: Any


def witness(folder: Path, *, temperature: float = 1.0, device: str = "auto") -> Witness:
    """Return a model that says how likely it was to sample what rows hold.

    Args:
        folder: A Hugging Face model.
        temperature: At which the rows were sampled.
        device: Where to compute.

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
        words, context = policy.model.config.vocab_size, policy.model.config.max_position_embeddings
        if len(row) > context or max(row) >= words:
            raise ConfigError(
                f"the model reads {context} tokens below {words}, got {len(row)} up to {max(row)}: not its rows"
            )
        ids = torch.tensor([list(row)], device=policy.model.device)
        present = torch.ones_like(ids, dtype=torch.bool)
        asked = present.clone()
        asked[:, 0] = False
        with torch.no_grad():
            found, _ = token_logprobs(policy.model, ids, present, asked, temperature=temperature)
        values: list[float] = found[0].tolist()
        return values

    return Witness(logprobs, policy.tokenizer)
