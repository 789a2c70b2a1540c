"""What of a player's text goes to an interpreter: words that the game knows, and nothing that a snapshot lacks."""

import re
from collections.abc import Set

from tsr_gym_envs.reasons import shown

# What the interpreter takes of a command, in bytes of UTF-8.
MAX_COMMAND = 198
# These write files, or stop the interpreter; a search undoes and restores by itself.
RESERVED = frozenset(
    (
        *("save", "restore", "undo", "restart", "quit", "q", "unscript", "record", "replay"),
        *("script", "script on", "script off", "transcript", "transcript on", "transcript off"),
        *("recording", "recording on", "recording off"),
    )
)
# TextWorld's own questions to its stories, which tell and change what no player should.
_INNER = re.compile(r"tw-|restrict |print_state|print state")
_CLAUSES = re.compile(r"[.,;!?]|\bthen\b|\band\b")
_WORDS = re.compile(r"[^\s.,;:!?\"()]+")
# A dictionary keeps the beginning of a word: six letters in early games, nine in later ones, fewer of other signs.
_KEPT = range(4, 10)


def command_of(action: str) -> str:
    r"""Return the command that an action stands for: its words, one blank between them.

    >>> command_of("  take  lamp\n")
    'take lamp'
    """
    return " ".join(action.split())


def refusal(command: str, dictionary: Set[str]) -> str | None:
    """Return why a command is not given to the interpreter, None where it is.

    Args:
        command: What `command_of` returned.
        dictionary: The words that the game knows.

    >>> words = {"go", "north", "save", "cat", "the", "examin"}
    >>> refusal("examine the cat", words), refusal("jump north", words)
    (None, "'jump' is no word of this game")
    >>> refusal("go north. Save", words)
    "'save' is left to the search: write what the player does"
    """
    if len(command.encode("utf-8", "replace")) > MAX_COMMAND:
        return f"the command is longer than {MAX_COMMAND} bytes"
    words = _WORDS.findall(command.lower())
    if not words:
        return f"{shown(command)} holds no word"
    for clause in _CLAUSES.split(command.lower()):
        said = " ".join(clause.split())
        if said in RESERVED or _INNER.match(said):
            return f"{shown(said)} is left to the search: write what the player does"
    for word in words:
        if not (word.isdecimal() or word in dictionary or any(word[:kept] in dictionary for kept in _KEPT)):
            return f"{shown(word)} is no word of this game"
    return None
