"""Compact texts, for very small models: everything read and written is lower-case words between blanks.

An answer in these words is graded as the text that it stands for, because grading ignores case and punctuation.
"""

import string
from dataclasses import replace

from tsr_gym import ConfigError
from tsr_gym_envs.retrieval_qa.passage import Passage
from tsr_gym_envs.retrieval_qa.protocol import Protocol, parse, write_answer, write_search

# What stands between the parts of an observation, and what tags are made of.
_SIGNS = str.maketrans(dict.fromkeys("<>|", " "))
# What is shown where a search found nothing, and after a turn that is none.
NOTHING, NO_ACTION = "nothing", "no action"


def plain(text: str) -> str:
    """Return a text as lower-case words between blanks, without the signs around them.

    >>> plain("The film 'Larkwell (1,105 metres)', by J. O-Brien")
    'the film larkwell 1,105 metres by j o-brien'
    """
    # Grading ignores no other signs than these.
    stripped = (word.strip(string.punctuation) for word in text.lower().translate(_SIGNS).split())
    return " ".join(word for word in stripped if word)


def plain_passage(passage: Passage) -> Passage:
    """Return a passage with plain title and text."""
    return passage._replace(title=plain(passage.title), text=plain(passage.text))


def compact_protocol(protocol: Protocol) -> Protocol:
    """Return a protocol with its tags and rules, whose observations hold no more than the passages.

    Raises:
        ConfigError: Searches are calls of a tool, which need signs.
    """
    if protocol.tool:
        raise ConfigError(
            "compact texts hold words and tags alone: wanted a protocol without tool calls, such as 'search-r1', got "
            f"the tool {protocol.tool!r}"
        )
    return replace(
        protocol,
        instructions="",
        document="doc {name} | {text} ",
        strip=True,
        between=" ",
        escape="",
        observation="{documents}",
        invalid=NO_ACTION,
    )


def compact_turn(turn: str, protocol: Protocol) -> str:
    """Return a turn in plain words.

    >>> from tsr_gym_envs.retrieval_qa.protocol import PROTOCOLS
    >>> compact_turn("<search>Who led Larkwell?</search>", PROTOCOLS["search-r1"])
    '<search> who led larkwell </search>'
    """
    action = parse(turn, protocol)
    if action.kind == "answer":
        return write_answer(f" {plain(action.answer)} ", protocol)
    return write_search(f" {plain(' '.join(action.queries))} ", protocol)
