"""Question: what is asked, what counts as an answer, and what is known about how to find it."""

from typing import NamedTuple


class Question(NamedTuple):
    """One question with its answers.

    Attributes:
        id: The question's name, unique within its data source.
        data_source: The data set that it comes from, such as ``"hotpotqa"``.
        question: The question itself.
        golden_answers: Texts that count as right answers; at least one.
        supporting: Ids of the passages that together hold the answer; () where unknown.
        split: ``"train"``, ``"dev"`` or ``"test"`` as published; "" where the data set has none.
        hops: How many passages must be combined; None where unknown.
        steps: The decomposition, a (query or sub-question, answer) per step; () where unknown.
    """

    id: str
    data_source: str
    question: str
    golden_answers: tuple[str, ...]
    supporting: tuple[str, ...] = ()
    split: str = ""
    hops: int | None = None
    steps: tuple[tuple[str, str], ...] = ()

    @property
    def group(self) -> tuple[str, str]:
        """What rollouts of this question are grouped by: ids repeat across data sources."""
        return self.data_source, self.id
