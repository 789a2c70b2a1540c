"""TreeSearchWrapper: an environment whose history is a tree, and the loop that grows trees.

The wrapper holds no model: whoever decides is an argument. Invariant: between calls the environment below stands at
the cursor's state.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, is_dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

import gymnasium as gym

from tsr_gym.budget import Budget
from tsr_gym.errors import EpisodeOver, TsrGymError
from tsr_gym.seeds import derive_seed
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import NOISES, Noise, restore, snapshot
from tsr_gym.state_env import StateEnv
from tsr_gym.tree import Candidate, Expand, Node, Policy, Strategy, Tree

# Types of values that nobody can change.
_FIXED = frozenset((bool, int, float, str, bytes, type(None)))


class TreeSearchWrapper(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Record an episode as a tree, and grow the tree from any node of it.

    `step` keeps its Gymnasium meaning: one action, recorded under the cursor, and the cursor moves. `expand` adds
    imagined turns anywhere without moving it, `goto` moves it, `search` lets a strategy and a policy grow the tree from
    it, and `rollout` plays an episode turn by turn with a search before each turn.

    Two things are kept apart. A *searched* path was imagined on dice of its own and then selected, so its return is
    optimistic: data for training. The *played* episode (`tree.played`) ran on the episode's own dice: only that is
    success.

    Args:
        env: Any stack that `tsr_gym.snapshot` supports.
        noise: The dice of imagined turns. ``"fresh"``: a seed for every child. ``"common"``: one that siblings share.
            ``"same"``: the episode's own future, which makes the search clairvoyant; its trees say so in `about`.

    >>> import gymnasium as gym, tsr_gym
    >>> env = TreeSearchWrapper(gym.make("tsr/FrozenLake-v0"))
    >>> _ = env.reset(seed=3)
    >>> [env.tree.nodes[i].depth for i in env.expand(0, [Candidate("Up"), Candidate("Left")])]
    [1, 1]
    >>> env.cursor
    0
    """

    def __init__(self, env: gym.Env[Any, Any], noise: Noise = "fresh") -> None:
        if noise not in NOISES:
            raise ValueError(f"wanted noise of {NOISES}, got {noise!r}")
        gym.utils.RecordConstructorArgs.__init__(self, noise=noise)
        super().__init__(env)
        self.noise: Noise = noise
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
        """Start an episode and a new tree, whose choices derive from `seed`."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._plant(observation, info, seed)
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
        result = self.env.step(candidate.text)
        tree.charge(Budget(env_steps=1))
        node = _node(tree, cursor, candidate, result, snapshot(self.env))
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
        restore(self.env, _snapshot_of(there))
        self.tree.charge(Budget(restores=1))
        self._cursor = node
        return deepcopy(there.observation), _own(there.info)

    def expand(self, node: int, candidates: Sequence[Candidate], *, noise: Noise | None = None) -> list[int]:
        """Add one imagined turn per candidate under a node; the cursor stays where it is.

        Candidates with the same text share one environment step where that cannot change the outcome: where the turn
        drew no random numbers, or where both would draw the same ones.

        Args:
            node: Where to expand.
            candidates: What to try.
            noise: The dice, instead of the wrapper's.

        Returns:
            The new nodes, in the candidates' order.

        Raises:
            EpisodeOver: The episode has ended at the node.
        """
        tree = self.tree
        started = perf_counter()
        noise = self.noise if noise is None else noise
        parent = tree.node(node)
        if parent.done:
            raise EpisodeOver(f"node {node} ends its episode: expand an open leaf")
        before, base = _snapshot_of(parent), self.unwrapped
        address = tree.branch(node)
        first = len(tree.children(node))
        outcomes: dict[Any, tuple[Any, Snapshot]] = {}
        new, steps, inside = [], 0, 0.0
        for number, candidate in enumerate(candidates, start=first):
            outcome = outcomes.get(candidate.text)
            if outcome is None:
                restore(self.env, before, noise=noise, seed=_noise_seed(tree.seed, noise, address, number))
                before_step = perf_counter()
                result = self.env.step(candidate.text)
                inside += perf_counter() - before_step
                # Asked before the snapshot, which reads the random state and so forgets what was drawn before.
                drew_noise = not isinstance(base, StateEnv) or base.drew_noise
                outcome = (result, snapshot(self.env))
                steps += 1
                if noise != "fresh" or not drew_noise:
                    outcomes[candidate.text] = outcome
            new.append(tree.add(_node(tree, node, candidate, *outcome)))
        restore(self.env, _snapshot_of(tree.nodes[self._cursor]))
        seconds = perf_counter() - started
        tree.charge(Budget(env_steps=steps, restores=steps + 1, seconds=seconds, env_seconds=inside))
        return new

    def search(self, policy: Policy, strategy: Strategy, *, noise: Noise | None = None) -> Tree:
        """Let a strategy and a policy grow the tree from the cursor.

        Returns:
            The tree as seen from the cursor.
        """
        grow([self], policy, strategy, noise=noise)
        return self.tree.at(self.cursor)

    def rollout(self, policy: Policy, strategy: Strategy, *, noise: Noise | None = None) -> Tree:
        """Play to the end of the episode, searching before every turn.

        Each search imagines from the cursor; the first turn of its best path is then played on the episode's own dice.

        Returns:
            The whole tree; `tree.played` is the episode.

        Raises:
            TsrGymError: The strategy expanded nothing.
        """
        play_out([self], policy, strategy, noise=noise)
        return self.tree

    def _plant(
        self, observation: Any, info: dict[str, Any], seed: int | None, done: tuple[bool, bool] = (False, False)
    ) -> None:
        snap = snapshot(self.env)
        seed = derive_seed("unseeded", snap.digest) if seed is None else seed
        about = self._about | {"noise": self.noise, "clairvoyant": self.noise == "same"}
        self._tree = Tree(seed=seed, score_of=self._score_of(), about=about)
        self._cursor = self._tree.add(
            Node(None, 0, Candidate(""), deepcopy(observation), 0.0, 0.0, *done, _own(info), snap), played=True
        )

    @cached_property
    def _about(self) -> dict[str, Any]:
        base = self.unwrapped
        rules = base.rules if isinstance(base, StateEnv) else None
        return {
            "env": None if base.spec is None else base.spec.id,
            "rules": asdict(rules) if is_dataclass(rules) and not isinstance(rules, type) else repr(rules),
        }

    def _score_of(self) -> Any:
        return self.env.get_wrapper_attr("score_of") if self.env.has_wrapper_attr("score_of") else "turn"

    def wrapper_state(self) -> Any:
        """Return what the environment last said; the tree is a record and does not decide the future."""
        here = self.tree.nodes[self.cursor]
        return here.observation, dict(here.info), here.terminated, here.truncated, self.tree.seed

    def set_wrapper_state(self, state: Any) -> None:
        """Begin a new tree at the restored state."""
        observation, info, terminated, truncated, seed = state
        self._plant(observation, info, seed, done=(terminated, truncated))


def grow(
    envs: Sequence[TreeSearchWrapper],
    policy: Policy,
    strategy: Strategy,
    *,
    noise: Noise | None = None,
    watch: Callable[[int], None] | None = None,
) -> None:
    """Run one search per environment from its cursor, all together: one call of the policy per round for all of them.

    Args:
        envs: Environments with a tree each.
        policy: Answers all wishes of a round at once.
        strategy: Makes the wishes of one search.
        noise: The dice, instead of each wrapper's.
        watch: Called after every round with the number of searches that go on.

    Raises:
        TsrGymError: The policy answered with another number of candidates than it was asked for, or a strategy
            yielded an empty list.
    """
    searches = [(env, view, strategy(view)) for env in envs for view in (env.tree.at(env.cursor),)]
    while searches:
        running = [(*one, wishes) for one in searches if (wishes := next(one[2], None)) is not None]
        requests = [(view, wish) for _, view, _, wishes in running for wish in wishes]
        if not all(wishes for *_, wishes in running):
            raise TsrGymError("a strategy yielded an empty list: let it return when it wants nothing more")
        answers = iter(_ask(policy, requests)) if requests else iter(())
        for env, view, _, wishes in running:
            answered = [next(answers) for _ in wishes]
            for wish, candidates in zip(wishes, answered, strict=True):
                env.expand(wish.node, candidates, noise=noise)
            view.charge(_cost([candidate for candidates in answered for candidate in candidates]))
        searches = [(env, view, plan) for env, view, plan, _ in running]
        if watch is not None:
            watch(len(searches))


def play_out(
    envs: Sequence[TreeSearchWrapper], policy: Policy, strategy: Strategy, *, noise: Noise | None = None
) -> None:
    """Play an episode in every environment to its end, all together, with a search before every turn of each.

    Raises:
        TsrGymError: The strategy expanded nothing.
    """
    while running := [env for env in envs if not env.tree.nodes[env.cursor].done]:
        grow(running, policy, strategy, noise=noise)
        for env in running:
            view = env.tree.at(env.cursor)
            leaves = [leaf for leaf in view.leaves() if leaf != env.cursor]
            if not leaves:
                raise TsrGymError(f"the strategy expanded nothing at node {env.cursor}: there is no turn to play")
            env.play(view.nodes[view.path(view.best(leaves, 1)[0])[1]].candidate)


def _ask(policy: Policy, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
    answers = policy(requests)
    wanted = [wish.samples for _, wish in requests]
    came = [len(candidates) for candidates in answers]
    if came != wanted:
        raise TsrGymError(f"the policy was asked for {wanted} candidates and gave {came}: answer every wish, in order")
    return answers


def _cost(candidates: Sequence[Candidate]) -> Budget:
    return Budget(
        model_calls=1,
        sampled_tokens=sum(len(candidate.token_ids) for candidate in candidates),
        prompt_tokens=sum(len(candidate.prompt_ids) for candidate in candidates),
    )


def _noise_seed(seed: int, noise: Noise, address: tuple[int, ...], number: int) -> int | None:
    if noise == "same":
        return None
    return derive_seed(seed, noise, *address, *((number,) if noise == "fresh" else ()))


def _snapshot_of(node: Node) -> Snapshot:
    if node.snapshot is None:
        raise TsrGymError("the node has no snapshot: the tree was saved without them")
    return node.snapshot


def _node(tree: Tree, parent: int, candidate: Candidate, result: Any, snap: Snapshot) -> Node:
    observation, reward, terminated, truncated, info = result
    # The node's own copies: outer wrappers add to `info`, and users write into arrays.
    return Node(
        parent=parent,
        depth=tree.nodes[parent].depth + 1,
        candidate=candidate,
        observation=observation if type(observation) is str else deepcopy(observation),
        reward=float(reward),
        score=float(info.get("score", reward)),
        terminated=terminated,
        truncated=truncated,
        info=_own(info),
        snapshot=snap,
    )


def _own(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy that shares nothing that can be changed; most values are numbers and text, which cannot."""
    return {name: value if type(value) in _FIXED else deepcopy(value) for name, value in info.items()}
