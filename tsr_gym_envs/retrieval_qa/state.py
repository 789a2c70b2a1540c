"""RetrievalState: where an episode stands, small and immutable; passages are kept by id, never as text."""

from typing import Literal, NamedTuple


class RetrievalTurn(NamedTuple):
    """One turn of an episode.

    Attributes:
        text: What the agent wrote, up to where the protocol stops reading.
        kind: What it asked for; ``"late"`` is a search in the last turn, which is not carried out.
        queries: The queries of a search.
        passages: Ids of the passages that it was shown, in their order.
    """

    text: str
    kind: Literal["search", "answer", "invalid", "late"]
    queries: tuple[str, ...] = ()
    passages: tuple[str, ...] = ()


class RetrievalState(NamedTuple):
    """Where an episode stands.

    Attributes:
        question: The question's number in its file.
        turns: What was done so far.
        answer: The final answer; None until it is given.
        answer_turn: The first turn, counted from 1, whose passages hold a golden answer (t* of TSPO's FOLR, arXiv
            2601.22776); None as long as there is none.
        found: Ids of the supporting passages that were shown so far, in the order of the question's.
    """

    question: int
    turns: tuple[RetrievalTurn, ...] = ()
    answer: str | None = None
    answer_turn: int | None = None
    found: tuple[str, ...] = ()
