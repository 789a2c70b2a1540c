"""Replay: saved trees come out bit for bit, and so does every state of random interleavings."""

import json
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tsr_gym.testing.worlds import Board, Dice, Walk
from tsr_gym import ConfigError, InvalidTree, Limits, Tree, clone, restore, snapshot
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import beam
from tsr_gym.codec import encode
from tsr_gym.seeds import derive_seed
from tsr_gym.wrappers import AnswerFormat, FrozenLakeScore, RewardScore, SokobanScore, TreeSearchWrapper
from tsr_gym.wrappers.replay import Replayed, replay, stack_of

SCORES = {"tsr/Sokoban-v0": SokobanScore, "tsr/FrozenLake-v0": FrozenLakeScore}


def grown(name, noise="fresh", repeats=1):
    """Return a tree with an episode that was played and turns that were imagined."""
    stack = SCORES[name](AnswerFormat(gym.make(name, max_turns=3), penalty=0.25))
    env = TreeSearchWrapper(stack, noise=noise, repeats=repeats)
    env.reset(seed=3)
    return env.rollout(RandomPolicy(env.unwrapped.actions), partial(beam, width=2, branching=5, depth=2))


def saved(tree, folder, snapshots=True):
    tree.save(folder / "tree.jsonl", snapshots=snapshots)
    return Tree.load(folder / "tree.jsonl")


@pytest.mark.parametrize("snapshots", [True, False], ids=["with snapshots", "without"])
@pytest.mark.parametrize(
    ("name", "noise", "repeats"),
    [
        ("tsr/Sokoban-v0", "fresh", 1), ("tsr/FrozenLake-v0", "fresh", 1), ("tsr/FrozenLake-v0", "common", 1),
        ("tsr/FrozenLake-v0", "same", 1), ("tsr/FrozenLake-v0", "fresh", 3),
    ],
)  # fmt: skip
def test_a_tree_comes_out_bit_for_bit(tmp_path, name, noise, repeats, snapshots):
    tree = saved(grown(name, noise, repeats), tmp_path, snapshots)
    assert replay(tree, stack_of(tree)) == Replayed(len(tree.nodes), None)
    assert len(tree.nodes) > 10


def changed(tree, folder, node, **fields):
    """Return a tree in whose file a node was changed."""
    tree.save(folder / "changed.jsonl")
    lines = (folder / "changed.jsonl").read_text().splitlines()
    lines[node + 1] = json.dumps(json.loads(lines[node + 1]) | fields)
    (folder / "changed.jsonl").write_text("\n".join(lines) + "\n")
    return Tree.load(folder / "changed.jsonl")


@pytest.mark.parametrize(
    ("field", "value"), [("reward", 7.5), ("observation", "nothing"), ("truncated", True), ("score", 40.0)]
)
def test_the_first_node_that_differs_is_named_with_what_was_saved_and_what_came(tmp_path, field, value):
    whole = grown("tsr/FrozenLake-v0")
    tree = changed(whole, tmp_path, 4, **{field: value})
    difference = replay(tree, stack_of(tree)).difference
    assert difference == (4, field, value, json.loads(json.dumps(getattr(whole.nodes[4], field))))


def test_another_turn_is_noticed_and_scores_of_a_rater_can_be_left_out(tmp_path):
    whole = grown("tsr/Sokoban-v0")
    other = "Left" if "Left" not in whole.nodes[2].candidate.text else "Right"
    tree = changed(whole, tmp_path, 2, candidate=[f"<think></think><answer>{other}</answer>", [], [], []])
    assert replay(tree, stack_of(tree)).difference.node == 2
    tree = changed(grown("tsr/FrozenLake-v0"), tmp_path, 4, score=40.0)
    assert replay(tree, stack_of(tree)).difference.field == "score"
    # Only nodes below the changed one add its score up, and no other field of theirs changes.
    assert replay(tree, stack_of(tree), scores=False).difference is None


def test_environments_of_others_are_replayed_too(tmp_path):
    env = TreeSearchWrapper(RewardScore(gym.make("CartPole-v1")))
    env.reset(seed=1)
    env.step(1)
    env.expand(1, [0, 1, 1])
    tree = saved(env.tree, tmp_path)
    assert replay(tree, stack_of(tree)) == Replayed(5, None)


def test_a_file_makes_nothing_but_registered_environments_and_known_wrappers(tmp_path):
    tree = grown("tsr/Sokoban-v0")
    tree.about["stack"]["wrappers"][0] = {"entry_point": "os:system", "kwargs": {"command": "true"}}
    with pytest.raises(ConfigError, match=r"os:system.*in Python"):
        stack_of(tree)
    tree.about["stack"]["wrappers"][0] = {"entry_point": "tsr_gym.wrappers.scorers:make_scorer", "kwargs": {}}
    with pytest.raises(ConfigError, match="is no wrapper"):
        stack_of(tree)


def test_a_tree_without_its_environment_dice_or_texts_is_refused(tmp_path):
    tree = grown("tsr/Sokoban-v0")
    whole = tree.about["stack"]
    for stack in (None, {}, whole | {"wrappers": 3}, whole | {"kwargs": {"wings": 2}}):
        tree.about["stack"] = stack
        with pytest.raises(ConfigError, match=r"how its environment was made|cannot be made|unknown settings"):
            stack_of(tree)
    tree.about["stack"], tree.about["repeats"] = whole, "many"
    with pytest.raises(InvalidTree, match="many"):
        replay(tree, stack_of(tree))
    tree = changed(grown("tsr/Sokoban-v0"), tmp_path, 2, candidate=[5, [], [], []])
    with pytest.raises(InvalidTree, match=r"wanted turns as text.*got 5"):
        replay(tree, stack_of(tree))


# Random interleavings of all operations that move a searched environment are compared with replays from the start. A
# life is the history of a state: the actions since the reset, and where dice were exchanged. The reference plays a life
# in a new stack, step by step, and uses neither snapshots nor trees.
WORDS = ("Left", "Right", "Jump", "Left || Jump", "Jump || Jump", "junk")
SAID = ("junk", *(f"<think></think><answer>{word}</answer>" for word in ("Left", "Up || Down", "Right || Right")))


class World(NamedTuple):
    """An environment, the wrappers that fit around it, and what may be done in it."""

    make: Any
    around: tuple[Any, ...]
    actions: tuple[Any, ...]


TEXT = (
    lambda env: wrappers.TimeLimit(env, 5), wrappers.OrderEnforcing, wrappers.PassiveEnvChecker,
    wrappers.RecordEpisodeStatistics, lambda env: wrappers.StickyAction(env, 0.4),
    lambda env: wrappers.TransformReward(env, lambda reward: 2 * reward),
)  # fmt: skip
if "RepeatAction" in wrappers.__all__:  # Gymnasium 1.2 does not have it.
    TEXT += (lambda env: wrappers.RepeatAction(env, 2),)
ARRAYS = (
    lambda env: wrappers.TimeLimit(env, 5), lambda env: wrappers.StickyAction(env, 0.4),
    lambda env: wrappers.FrameStackObservation(env, 3), lambda env: wrappers.DelayObservation(env, 2),
    wrappers.NormalizeReward, lambda env: wrappers.MaxAndSkipObservation(env, 2),
)  # fmt: skip
WORLDS = {
    "Walk": World(lambda: Walk(Limits(max_turns=9)), TEXT, WORDS),
    "FrozenLake": World(lambda: FrozenLakeScore(AnswerFormat(gym.make("tsr/FrozenLake-v0"))), TEXT, SAID),
    "Sokoban": World(lambda: AnswerFormat(gym.make("tsr/Sokoban-v0")), TEXT, SAID),
    "Board": World(Board, ARRAYS, tuple(range(9))),
    "Dice": World(Dice, TEXT, (0, 1, 2)),
}


class Dealt(NamedTuple):
    """New dice from a seed."""

    seed: int


class Done(NamedTuple):
    """An action."""

    action: Any


class Reference:
    """Play lives in a stack that was never restored."""

    def __init__(self, make: Any, seed: int) -> None:
        self.make, self.seed = make, seed

    def play(self, life: tuple[Any, ...]) -> tuple[Any, bool]:
        """Return the result of the last step of a life, and whether it drew random numbers."""
        env = self.make()
        shown: Any = env.reset(seed=self.seed)
        drew = True
        for event in life:
            base = env.unwrapped
            if isinstance(event, Dealt):
                base.np_random = np.random.Generator(np.random.PCG64(event.seed))
                continue
            before = base.np_random.bit_generator.state
            shown = env.step(event.action)
            drew = base.np_random.bit_generator.state != before
        return shown, drew


def same(one: Any, other: Any) -> bool:
    """Return whether two results are equal bit for bit, elapsed seconds and the types of numbers aside."""
    plain = []
    for observation, *numbers, info in (one, other):
        info.get("episode", {}).pop("t", None)
        plain.append(encode((observation, tuple(map(float, numbers)), info)))
    return plain[0] == plain[1]


class Twin:
    """A searched environment with the separate lives of its nodes.

    Invariant: wherever it stands, it shows what the reference shows after the same life.
    """

    def __init__(self, make: Any, seed: int) -> None:
        self.reference = Reference(make, seed)
        self.env: Any = TreeSearchWrapper(make())
        self.env.reset(seed=seed)
        self.lives: list[tuple[Any, ...]] = [()]
        self.kept: list[tuple[Any, tuple[Any, ...]]] = []
        self.keep()

    @property
    def here(self) -> tuple[Any, ...]:
        return self.lives[self.env.cursor]

    def open(self) -> list[int]:
        return [index for index, node in enumerate(self.env.tree.nodes) if not node.done]

    def step(self, action: Any) -> None:
        if self.env.tree.nodes[self.env.cursor].done:
            return
        life = (*self.here, Done(action))
        result = self.env.step(action)
        self.lives.append(life)
        assert same(result, self.reference.play(life)[0])

    def expand(self, node: int, actions: list[Any], noise: str) -> None:
        tree, first = self.env.tree, len(self.env.tree.children(node))
        shared: dict[Any, tuple[Any, ...]] = {}
        for number, action in enumerate(actions, start=first):
            address = tree.branch(node) + ((number,) if noise == "fresh" else ())
            dice = () if noise == "same" else (Dealt(derive_seed(tree.seed, noise, *address)),)
            life = shared.get(action) or (*self.lives[node], *dice, Done(action))
            # Equal actions share a step, and so the dice that lie there afterwards, where none were thrown.
            if noise != "fresh" or not self.reference.play(life)[1]:
                shared[action] = life
            self.lives.append(life)
        cursor = self.env.cursor
        for index in self.env.expand(node, actions, noise=noise):
            grown = tree.nodes[index]
            here = (grown.observation, grown.reward, grown.terminated, grown.truncated, dict(grown.info))
            assert same(here, self.reference.play(self.lives[index])[0])
        assert self.env.cursor == cursor

    def goto(self, node: int) -> None:
        observation, info = self.env.goto(node)
        shown, _ = self.reference.play(self.lives[node])
        assert same((observation, info), (shown[0], shown[-1]))

    def keep(self) -> None:
        self.kept.append((snapshot(self.env), self.here))

    def put_back(self, which: int) -> None:
        snap, life = self.kept[which % len(self.kept)]
        restore(self.env, snap)
        assert snapshot(self.env) == snap
        self.lives = [life]

    def swap_with_a_clone(self, action: Any) -> None:
        """Continue in a clone, whose tree begins where it was made, after the original has played on."""
        twin, life = clone(self.env), self.here
        if not self.env.tree.nodes[self.env.cursor].done:
            self.env.step(action)
        self.env, self.lives = twin, [life]


def do(twin: Twin, actions: tuple[Any, ...], draw: Any) -> None:
    """Do one thing that hypothesis chooses."""
    one_of, numbers = st.sampled_from, st.integers(0, 10**6)
    what = draw(one_of(("step", "step", "expand", "expand", "goto", "keep", "put back", "clone")))
    if what == "step":
        twin.step(draw(one_of(actions)))
    elif what == "expand" and twin.open():
        chosen = draw(st.lists(one_of(actions), min_size=1, max_size=4))
        twin.expand(draw(one_of(twin.open())), chosen, draw(one_of(("fresh", "common", "same"))))
    elif what == "goto":
        twin.goto(draw(numbers) % len(twin.lives))
    elif what == "keep":
        twin.keep()
    elif what == "put back":
        twin.put_back(draw(numbers))
    elif what == "clone":
        twin.swap_with_a_clone(draw(one_of(actions)))


def stacked(world: World, around: list[Any]) -> Any:
    env = world.make()
    for wrapper in around:
        env = wrapper(env)
    return env


@pytest.mark.parametrize("name", WORLDS)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_whatever_is_done_in_whatever_order_every_state_is_what_a_replay_from_the_start_shows(name, data):
    world = WORLDS[name]
    around = data.draw(st.lists(st.sampled_from(world.around), max_size=3, unique=True))
    twin = Twin(lambda: stacked(world, around), data.draw(st.integers(0, 1000)))
    for _ in range(data.draw(st.integers(1, 14))):
        do(twin, world.actions, data.draw)
