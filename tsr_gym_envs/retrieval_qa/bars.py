"""The success of uniformly random play, exactly: what can be said depends on the question and the last titles alone."""

from collections.abc import Callable

from tsr_gym_envs.retrieval_qa.answers import exact_match
from tsr_gym_envs.retrieval_qa.protocol import Protocol, parse
from tsr_gym_envs.retrieval_qa.question import Question
from tsr_gym_envs.retrieval_qa.searches import Searches

# From the titles that were read last to the turns that are drawn from.
Turns = Callable[[tuple[str, ...]], tuple[str, ...]]


def random_success(question: Question, searches: Searches, turns: Turns, protocol: Protocol, num_turns: int) -> float:
    """Return the probability that uniformly drawn turns end in a golden answer.

    ``V_n(q) = mean_a V(q, a)``: an answer is worth 1 or 0, a search for q' is worth ``V_{n-1}(q')``, and 0 in the last
    turn, which never searches.

    Args:
        question: The question.
        searches: What is searched.
        turns: What is drawn from.
        protocol: How turns are read.
        num_turns: Turns of an episode.
    """
    known: dict[tuple[tuple[str, ...], int], float] = {}

    def value(titles: tuple[str, ...], left: int) -> float:
        key = (titles, left)
        if key not in known:
            offered = turns(titles)
            known[key] = sum(worth(turn, left) for turn in offered) / len(offered)
        return known[key]

    def worth(turn: str, left: int) -> float:
        action = parse(turn, protocol)
        if action.kind == "answer":
            return float(exact_match(action.answer, question.golden_answers))
        return value(searches.find(action.queries).titles, left - 1) if left > 1 else 0.0

    return value((), num_turns)
