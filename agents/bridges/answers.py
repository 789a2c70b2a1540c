"""Answers: where a tokenizer's chat template says that the model spoke in a row of token ids."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tsr_gym.errors import ConfigError

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
