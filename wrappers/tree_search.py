"""TreeSearchWrapper: an environment whose history is a tree.

The wrapper holds no model: policy and strategy are arguments. Invariant: between calls the environment below stands at
the cursor's state.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, is_dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

import gymnasium as gym

from tsr_gym.errors import ConfigError, EpisodeOver, NotFinite, SnapshotError, TsrGymError, named, shown
from tsr_gym.ranges import check_counts, check_range
from tsr_gym.seeds import derive_seed
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import NOISES, Noise, Stack, env_support, replayable, restore
from tsr_gym.state_env import StateEnv
from tsr_gym.tree import Budget, Candidate, Node, Policy, Rater, Strategy, Tree
from tsr_gym.wrappers.grow import grow, play_out
from tsr_gym.wrappers.imagine import Imagination, ImaginedTurn, Risk, key_of, node_of, own_info, score_in
from tsr_gym.wrappers.replay import stack_facts


class TreeSearchWrapper(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Record an episode as a tree, and grow the tree from any node of it.

    `step` keeps its Gymnasium meaning: one action, recorded under the cursor, and the cursor moves. `expand` adds
    imagined turns anywhere without moving it, `goto` moves it, `search` lets a strategy and a policy grow the tree from
    it, and `rollout` plays an episode turn by turn with a search before each turn.

    Two things are kept apart. A *searched* path was imagined on separate dice and then selected, so its return is
    optimistic: data for training. The *played* episode (`tree.played`) ran on the episode's own dice: only that is
    success.

    Args:
        env: Any stack that `tsr_gym.env_support` supports; one that can only be replayed is made ready for that here.
        noise: The dice of imagined turns. ``"fresh"``: a seed for every child. ``"common"``: one that siblings share.
            ``"same"``: the episode's own future, which makes the search clairvoyant; its trees record that in `about`.
        repeats: Draws on which every imagined turn with a random outcome is tried. The node continues from the first,
            its score is that of all, and ``info["score_draws"]`` lists them. With a single draw a search prefers lucky
            outcomes.
        risk: How the scores of the draws become one: their mean, or a quantile, such as 0.25 for a cautious search.

    >>> import gymnasium as gym, tsr_gym
    >>> env = TreeSearchWrapper(gym.make("tsr/FrozenLake-v0"))
    >>> _ = env.reset(seed=3)
    >>> [env.tree.nodes[i].depth for i in env.expand(0, [Candidate("Up"), Candidate("Left")])]
    [1, 1]
    >>> env.cursor
    0
    """

    def __init__(self, env: gym.Env[Any, Any], noise: Noise = "fresh", repeats: int = 1, risk: Risk = "mean") -> None:
        if noise not in NOISES:
            raise ValueError(f"wanted noise of {NOISES}, got {noise!r}")
        check_counts(repeats=repeats)
        if risk != "mean":
            if isinstance(risk, str):
                raise ConfigError(f'wanted risk "mean" or a quantile from 0 to 1, got {risk!r}')
            check_range(least=0, most=1, risk=risk)
        gym.utils.RecordConstructorArgs.__init__(self, noise=noise, repeats=repeats, risk=risk)
        super().__init__(replayable(env) if env_support(env).level == "replay" else env)
        self.noise: Noise = noise
        self.repeats = repeats
        self.risk: Risk = risk
        self._tree: Tree | None = None
        self._cursor = Tree.ROOT

    @property
    def tree(self) -> Tree:
        """The tree of the running episode.

        Raises:
            TsrGymError: `reset` was not called yet.
        """
        if self._tree is None:
            raise TsrGymError("the tree begins with an episode: call reset() first")
        return self._tree

    @property
    def started(self) -> bool:
        """Whether there is a tree."""
        return self._tree is not None

    @property
    def cursor(self) -> int:
        """The node at which the environment stands."""
        return self._cursor

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode and a new tree, whose choices derive from `seed`.

        Args:
            seed: Seed of the episode and of the tree.
            options: What the environment takes. ``"snapshot"`` starts in the middle of an episode, see
                `StateEnv.reset`; for other environments ``"observation"`` must hold the observation there.

        Raises:
            SnapshotError: The snapshot does not fit, or lacks the observation.
        """
        options = dict(options or {})
        # A `StateEnv` resets into a snapshot itself, and shows the observation there.
        if "snapshot" in options and not isinstance(self.unwrapped, StateEnv):
            observation, info = self._reset_into(options.pop("snapshot"), seed, options)
        else:
            observation, info = self.env.reset(seed=seed, options=options or None)
        self._plant(observation, info, seed)
        return observation, info

    def _reset_into(self, snap: Snapshot, seed: int | None, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if "observation" not in options:
            raise SnapshotError(
                f"a snapshot of {type(self.unwrapped).__name__} does not show its observation: wanted "
                'options={"snapshot": ..., "observation": ...}'
            )
        observation = options.pop("observation")
        _, info = self.env.reset(seed=seed, options=options or None)
        dice = derive_seed("moment", snap.digest) if seed is None else seed
        # Fresh dice: with those of the snapshot, every start at this state would have the same future.
        restore(self.env, snap, noise="fresh", seed=dice)
        return observation, info

    def begin(self, seed: int, *, noise: Noise | None = None, dice: int | None = None) -> Tree:
        """Start a new tree at the cursor's state, whose choices derive from `seed`, and return it.

        Args:
            seed: Seed of the tree.
            noise: The dice of imagined turns from now on; None keeps the wrapper's.
            dice: Seed of the episode's own dice from now on; None keeps them.
        """
        if noise is not None:
            self.noise = noise
        here = self.tree.nodes[self.cursor]
        if dice is not None:
            restore(self.env, _snapshot_of(here), noise="fresh", seed=dice)
        self._plant(here.observation, dict(here.info), seed, done=(here.terminated, here.truncated))
        return self.tree

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one turn from the cursor on the episode's own dice, record it, and move the cursor to it."""
        return self.play(Candidate(action))

    def play(self, candidate: Candidate) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take the turn of a candidate, as `step` does, and record its tokens with it."""
        tree, cursor = self.tree, self._cursor
        try:
            result = self.env.step(candidate.text)
            tree.spend(env_steps=1)
            score = score_in(result)
        except NotFinite as error:
            # Here the turn was taken already, so the environment goes back to where the tree stands.
            self._stack.restore(_snapshot_of(tree.nodes[cursor]))
            raise self._placed(error, cursor, candidate) from error
        turn = ImaginedTurn(result, self._stack.snapshot(), key_of(self.unwrapped), score, (score,))
        node = node_of(tree, cursor, candidate, turn)
        # The turn belongs to the played episode only if it continues it: after `goto` it is another branch.
        self._cursor = tree.add(node, played=tree.played[-1:] == [cursor])
        observation, reward, terminated, truncated, info = result
        return observation, float(reward), terminated, truncated, info

    def goto(self, node: int) -> tuple[Any, dict[str, Any]]:
        """Move the cursor, and the environment, to a node; return its observation and info.

        Raises:
            SnapshotError: The tree was loaded from a file without snapshots.
            IndexError: There is no such node.
        """
        there = self.tree.node(node)
        self._stack.restore(_snapshot_of(there))
        self.tree.spend(restores=1)
        self._cursor = node
        # A caller may write into the observation that it gets, and the tree must stay as it was.
        return deepcopy(there.observation), own_info(there.info)

    def expand(self, node: int, candidates: Sequence[Candidate | Any], *, noise: Noise | None = None) -> list[int]:
        """Add one imagined turn per candidate under a node; the cursor stays where it is.

        Candidates with the same action share one environment step where that cannot change the outcome: where the turn
        drew no random numbers, or where both would draw the same ones.

        Args:
            node: Where to expand.
            candidates: What to try: candidates, or bare actions.
            noise: The dice, instead of the wrapper's.

        Returns:
            The new nodes, in the candidates' order.

        Raises:
            EpisodeOver: The episode has ended at the node.
            ValueError: The episode's own dice have one future, and more draws than that are wanted.
        """
        return self.expand_each([(node, candidates)], noise=noise)

    def expand_each(
        self, wanted: Sequence[tuple[int, Sequence[Candidate | Any]]], *, noise: Noise | None = None
    ) -> list[int]:
        """Do what `expand` does at several nodes, and go back to the cursor only once.

        Args:
            wanted: Nodes, and the candidates to try at each.
            noise: The dice, instead of the wrapper's.
        """
        tree, started = self.tree, perf_counter()
        new: list[int] = []
        tries: list[Imagination] = []
        try:
            for node, candidates in wanted:
                imagined = self._imagination(node, self.noise if noise is None else noise)
                tries.append(imagined)
                # The number of a child is part of its address, from which its dice derive. So a node that is expanded
                # twice with 4 candidates has the same dice as one that is expanded once with 8.
                for number, candidate in enumerate(map(_candidate, candidates), start=len(tree.children(node))):
                    try:
                        turn = imagined.turn(candidate.text, number)
                    except NotFinite as error:
                        raise self._placed(error, node, candidate) from error
                    new.append(tree.add(node_of(tree, node, candidate, turn)))
        finally:
            # Also after an exception: the turns before it are in the tree, and their cost counts.
            self._stack.restore(_snapshot_of(tree.nodes[self._cursor]))
            steps, inside = sum([attempt.steps for attempt in tries]), sum([attempt.seconds for attempt in tries])
            seconds = perf_counter() - started
            counts = {"env_steps": steps, "restores": steps + 1, "expansions": len(tries)}
            tree.spend(**counts, seconds=seconds, env_seconds=inside)
        return new

    def _placed(self, error: NotFinite, node: int, candidate: Candidate) -> NotFinite:
        """Return the error of a score or reward with the turn that it belongs to."""
        return NotFinite(f"{named(self.unwrapped)}, turn {shown(candidate.text)} at node {node}: {error}")

    def _imagination(self, node: int, noise: Noise) -> Imagination:
        before = self.tree.node(node)
        if before.done:
            raise EpisodeOver(f"node {node} ends its episode: expand an open leaf")
        return Imagination(
            self._stack,
            _snapshot_of(before),
            self.tree.branch(node),
            seed=self.tree.seed,
            noise=noise,
            repeats=self.repeats,
            risk=self.risk,
        )

    def search(
        self,
        policy: Policy,
        strategy: Strategy,
        *,
        noise: Noise | None = None,
        rater: Rater | None = None,
        limit: Budget | None = None,
    ) -> Tree:
        """Let a strategy and a policy grow the tree from the cursor.

        Args:
            policy: Answers the strategy's wishes.
            strategy: Yields the nodes to expand.
            noise: The dice, instead of the wrapper's.
            rater: Scores what grew in place of the environment's own score.
            limit: Where the search ends at the latest.

        Returns:
            The tree as seen from the cursor; `Tree.chosen` is what the strategy chose.
        """
        grow([self], policy, strategy, noise=noise, rater=rater, limit=limit)
        return self.tree.at(self.cursor)

    def rollout(
        self,
        policy: Policy,
        strategy: Strategy,
        *,
        noise: Noise | None = None,
        rater: Rater | None = None,
        limit: Budget | None = None,
    ) -> Tree:
        """Play to the end of the episode, searching before every turn.

        Each search imagines from the cursor; the first turn of the path that it chose is then played on the episode's
        own dice. The arguments are those of `search`.

        Returns:
            The whole tree; `tree.played` is the episode.

        Raises:
            TsrGymError: The strategy expanded nothing.
        """
        play_out([self], policy, strategy, noise=noise, rater=rater, limit=limit)
        return self.tree

    def _plant(
        self, observation: Any, info: dict[str, Any], seed: int | None, done: tuple[bool, bool] = (False, False)
    ) -> None:
        # For every tree again: a clone stands on other layers, and `replayable` may have put one in.
        self._stack = Stack(self.env)
        snap, key = self._stack.snapshot(), key_of(self.unwrapped)
        seed = derive_seed("unseeded", snap.digest) if seed is None else seed
        about = self._about | {"noise": self.noise, "clairvoyant": self.noise == "same"}
        if self.repeats > 1:
            about |= {"repeats": self.repeats, "risk": self.risk}
        if self.env.has_wrapper_attr("prunes"):
            about |= {"pruned": self.env.get_wrapper_attr("prunes")}
        self._tree = Tree(seed=seed, score_of=self._score_of(), about=about)
        self._cursor = self._tree.add(
            Node(None, 0, Candidate(""), deepcopy(observation), 0.0, 0.0, *done, own_info(info), snap, key), played=True
        )

    @cached_property
    def _about(self) -> dict[str, Any]:
        base = self.unwrapped
        rules = base.rules if isinstance(base, StateEnv) else None
        return {
            "env": None if base.spec is None else base.spec.id,
            "rules": asdict(rules) if is_dataclass(rules) and not isinstance(rules, type) else repr(rules),
            "stack": stack_facts(self.env),
        }

    def _score_of(self) -> Any:
        return self.env.get_wrapper_attr("score_of") if self.env.has_wrapper_attr("score_of") else "turn"

    def wrapper_state(self) -> Any:
        """Return the last observation and info; the tree is a record and does not decide the future."""
        here = self.tree.nodes[self.cursor]
        return here.observation, dict(here.info), here.terminated, here.truncated, self.tree.seed

    def set_wrapper_state(self, state: Any) -> None:
        """Begin a new tree at the restored state."""
        observation, info, terminated, truncated, seed = state
        self._plant(observation, info, seed, done=(terminated, truncated))


def _candidate(action: Candidate | Any) -> Candidate:
    return action if isinstance(action, Candidate) else Candidate(action)


def _snapshot_of(node: Node) -> Snapshot:
    if node.snapshot is None:
        raise TsrGymError("the node has no snapshot: the tree was saved without them")
    return node.snapshot
