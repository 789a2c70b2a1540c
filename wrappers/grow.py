"""The loop that grows trees: it gathers the requests of all searches, calls the policy once per round, and expands.

Invariant: a tree depends on its seed, the policy and the strategy, never on the other searches of the call or on
whether they wait for each other.
"""

from collections.abc import Callable, Generator, Iterator, Sequence, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from itertools import islice
from time import perf_counter
from typing import Any, Protocol

from tsr_gym.errors import EpisodeOver, TsrGymError, named, shown
from tsr_gym.ranges import check_counts, check_limits, finite
from tsr_gym.stack import Noise
from tsr_gym.tree import Budget, Candidate, Expand, Policy, Rater, Strategy, Tree


class TreeEnv(Protocol):
    """An environment whose history is a tree, as `TreeSearchWrapper` makes one."""

    @property
    def tree(self) -> Tree:
        """The tree of the running episode."""

    @property
    def cursor(self) -> int:
        """The node at which the environment stands."""

    def expand_each(
        self, wanted: Sequence[tuple[int, Sequence[Candidate | Any]]], *, noise: Noise | None = None
    ) -> list[int]:
        """Add children to several nodes at once, and return them in the wishes' order."""

    def play(self, candidate: Candidate) -> Any:
        """Take a turn of the episode."""


class _Search:
    """One search under way.

    Attributes:
        view: The tree as seen from where the search began.
        wishes: What its strategy wants next.
    """

    def __init__(self, env: TreeEnv, strategy: Strategy) -> None:
        self.env = env
        # A strategy sees the tree from the cursor on, so the same strategy works in the middle of an episode.
        self.view = env.tree.at(env.cursor)
        # The choice of an earlier search in this tree must not pass for that of this one, which a limit may end before
        # it chooses.
        self.view.choose(())
        self.wishes: list[Expand] = []
        # Limits hold for this search alone, and not for what the tree has cost before.
        self._before = env.tree.spent
        self._name = named(strategy)
        self._plan: Any = strategy(self.view)
        if not isinstance(self._plan, Iterator):
            raise TsrGymError(f"wanted the strategy {self._name} as a generator, it returned {shown(self._plan)}")

    def goes_on(self, limit: Budget | None) -> bool:
        """Ask the strategy for its next wishes; return False where it has none or the limit is reached."""
        if limit is not None and (self.view.spent - self._before).reached(limit):
            return False
        try:
            self.wishes = next(self._plan)
        except StopIteration as end:
            self._choose(end.value)
            return False
        self._check()
        return True

    def _choose(self, ends: Any) -> None:
        try:
            self.view.choose(() if ends is None else [self.view.path(end)[-1] for end in ends])
        except (TypeError, LookupError, ValueError) as error:
            raise self._nonsense("returned", ends, f"wanted the nodes at which paths end ({error})") from error

    def _check(self) -> None:
        """Raise TsrGymError where the wishes are no requests that a policy can answer."""
        wishes = self.wishes
        if not isinstance(wishes, list | tuple) or not all(isinstance(wish, Expand) for wish in wishes):
            raise self._nonsense("yielded", wishes, "wanted a list of Expand(node, samples)")
        if not wishes:
            raise self._nonsense("yielded", wishes, "let it return when it wants nothing more")
        try:
            for node, samples in wishes:
                # The call takes 0.6 microseconds, and there is one request for almost every turn of plain play.
                if type(samples) is not int or samples < 1:
                    check_counts(samples=samples)
                if self.view.node(node).done:
                    raise EpisodeOver(f"node {node} ends its episode: expand an open leaf")
        except (TsrGymError, TypeError, LookupError) as error:
            raise self._nonsense("yielded", wishes, str(error)) from error

    def _nonsense(self, verb: str, value: object, reason: str) -> TsrGymError:
        return TsrGymError(f"the strategy {self._name} {verb} {shown(value)}: {reason}")

    def requests(self) -> list[tuple[Tree, Expand]]:
        """Return the wishes as a policy is asked for them."""
        return [(self.view, wish) for wish in self.wishes]

    def take(self, answers: Sequence[Sequence[Candidate]], noise: Noise | None) -> list[tuple[Tree, int]]:
        """Expand with the policy's answers, and return the new nodes."""
        nodes = [wish.node for wish in self.wishes]
        grown = self.env.expand_each(list(zip(nodes, answers, strict=True)), noise=noise)
        candidates = [candidate for row in answers for candidate in row]
        self.view.spend(
            model_calls=1,
            sampled_tokens=sum([len(candidate.token_ids) for candidate in candidates]),
            prompt_tokens=sum([len(candidate.prompt_ids) for candidate in candidates]),
        )
        return [(self.view, node) for node in grown]


Answered = list[tuple[_Search, list[list[Candidate]]]]


def grow(
    envs: Sequence[TreeEnv],
    policy: Policy,
    strategy: Strategy,
    *,
    noise: Noise | None = None,
    rater: Rater | None = None,
    limit: Budget | None = None,
    workers: int | None = None,
    watch: Callable[[int], None] | None = None,
) -> None:
    """Run one search per environment from its cursor, all together.

    In lock-step, one call of the policy answers a round of all searches. With `workers`, searches that have their
    answers continue while others wait for theirs: as many calls run at a time, each for an equal share of the waiting
    searches. That pays where the policy is a server. The policy has to be safe to call from several threads.

    Args:
        envs: Environments with a tree each.
        policy: Answers all wishes that it is asked at once.
        strategy: Makes the wishes of one search; what it returns is recorded as `Tree.chosen`.
        noise: The dice, instead of each wrapper's.
        rater: Scores what grew in place of the environment's own score.
        limit: Ends a search as soon as one of these counts is used up. It is checked between rounds, so the last round
            may exceed it.
        workers: Calls of the policy that run at a time; None grows in lock-step.
        watch: Called after every round with the number of running searches.

    Raises:
        TsrGymError: The policy or the rater answered with another number than it was asked for, or the strategy
            yielded something else than requests for open nodes.
    """
    check_limits(workers=workers)
    searches = [_Search(env, strategy) for env in envs]
    waiting = [search for search in searches if search.goes_on(limit)]
    left = len(waiting)
    # The generator and the loop below share the list `waiting`: the loop puts searches back, and the generator takes
    # them out for its next call.
    rounds = _in_lock_step(waiting, policy) if workers is None else _as_they_come(waiting, policy, workers)
    # Closed also after an exception, so that the threads of `_as_they_come` end with the call.
    with closing(rounds):
        for answered in rounds:
            grown = [node for search, answers in answered for node in search.take(answers, noise)]
            if rater is not None:
                _rate(rater, grown)
            going_on = [search for search, _ in answered if search.goes_on(limit)]
            waiting += going_on
            left += len(going_on) - len(answered)
            if watch is not None:
                watch(left)


def play_out(
    envs: Sequence[TreeEnv],
    policy: Policy,
    strategy: Strategy,
    *,
    noise: Noise | None = None,
    rater: Rater | None = None,
    limit: Budget | None = None,
    workers: int | None = None,
) -> None:
    """Play an episode in every environment to its end, all together, with a search before every turn of each.

    What is played is the first turn of the path that the strategy chose, or of the best path where it chose none.
    `limit` holds for each search. An episode that stands at a proven dead end is over, and lost.

    Raises:
        TsrGymError: The strategy expanded nothing.
    """
    while running := [env for env in envs if env.tree.nodes[env.cursor].is_open]:
        grow(running, policy, strategy, noise=noise, rater=rater, limit=limit, workers=workers)
        for env in running:
            view = env.tree.at(env.cursor)
            # Every path begins at the cursor, so that its second node is the turn to play. The candidate is played
            # anew, on the episode's own dice: what the search imagined may not come true.
            env.play(view.nodes[view.path(_best_end(view))[1]].candidate)


def _best_end(view: Tree) -> int:
    leaves = [leaf for leaf in view.leaves() if leaf != view.root]
    if not leaves:
        raise TsrGymError(f"the strategy expanded nothing at node {view.root}: there is no turn to play")
    # A path into a dead end may have the best return so far, but no success can follow.
    alive = [leaf for leaf in leaves if view.nodes[leaf].is_open or view.nodes[leaf].done]
    ends = [node for node in view.chosen if node != view.root]
    return ends[0] if ends else view.best(alive or leaves, 1)[0]


def _in_lock_step(waiting: list[_Search], policy: Policy) -> Generator[Answered, None, None]:
    """Yield rounds for as long as searches are put back among those that wait."""
    while waiting:
        batch, waiting[:] = list(waiting), []
        yield _answer(policy, batch)


def _as_they_come(waiting: list[_Search], policy: Policy, workers: int) -> Generator[Answered, None, None]:
    """Yield answers as calls return; searches that are put back in the meantime share the free workers."""
    # The caller appends searches to `waiting` between two yields. Each time, all that wait are split over the workers
    # that are free now, so a call takes more searches the longer the others take. Which searches share a call depends
    # on the clock, but no tree does: its seeds come from its addresses.
    flying: set[Future[Answered]] = set()
    pool = ThreadPoolExecutor(workers)
    try:
        while waiting or flying:
            batch, waiting[:] = list(waiting), []
            flying |= {pool.submit(_answer, policy, share) for share in _shares(batch, workers - len(flying))}
            landed, flying = wait(flying, return_when=FIRST_COMPLETED)
            yield [answered for future in landed for answered in future.result()]
    finally:
        pool.shutdown(cancel_futures=True)


def _shares(searches: Sequence[_Search], number: int) -> Iterator[Sequence[_Search]]:
    """Yield searches in at most as many batches, of nearly equal size."""
    start = 0
    for left in range(number, 0, -1):
        # Rounded up, so that the first batches are the larger ones and none of at least one search is empty.
        end = start - (start - len(searches)) // left
        if end > start:
            yield searches[start:end]
        start = end


def _answer(policy: Policy, searches: Sequence[_Search]) -> Answered:
    """Call a policy once for the requests of some searches; each pays in proportion to its number of candidates."""
    requests = [request for search in searches for request in search.requests()]
    started = perf_counter()
    answers = policy(requests)
    seconds = perf_counter() - started
    asked, given = [wish.samples for _, wish in requests], [len(candidates) for candidates in answers]
    if given != asked:
        raise TsrGymError(f"the policy was asked for {asked} candidates and gave {given}: answer every wish, in order")
    # One call answers many trees; its time is divided by the number of candidates, which needs no further measurement.
    share = seconds / max(sum(asked), 1)
    for (view, _), samples in zip(requests, asked, strict=True):
        view.spend(seconds=share * samples)
    rest = iter(answers)
    return [(search, list(islice(rest, len(search.wishes)))) for search in searches]


def _rate(rater: Rater, grown: Sequence[tuple[Tree, int]]) -> None:
    started = perf_counter()
    scores = rater(grown)
    share = (perf_counter() - started) / max(len(grown), 1)
    if not isinstance(scores, Sized) or len(scores) != len(grown):
        raise TsrGymError(f"the rater {named(rater)} was asked for {len(grown)} scores and gave {shown(scores)}")
    for (tree, node), score in zip(grown, scores, strict=True):
        tree.rate(node, finite(score, f"the score of node {node}", rater))
        tree.spend(seconds=share)
