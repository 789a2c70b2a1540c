"""TreeSearchWrapper: an episode recorded as a tree, and imagined turns."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics

from tests.tsr_gym.testing.worlds import Board, Dice, Walk
from tsr_gym import (
    Budget,
    Candidate,
    EpisodeOver,
    Limits,
    SnapshotError,
    StateEnv,
    Step,
    Tree,
    TsrGymError,
    clone,
    replayable,
    restore,
    snapshot,
)
from tsr_gym.seeds import derive_seed
from tsr_gym.wrappers import AnswerFormat, FrozenLakeScore, TreeSearchWrapper

ICE = ["FFF", "FSF", "FGF"]


def lake(noise="fresh", **settings):
    env = TreeSearchWrapper(gym.make("tsr/FrozenLake-v0", **{"desc": ICE, **settings}), noise=noise)
    env.reset(seed=3)
    return env


def walk(noise="fresh", **limits):
    env = TreeSearchWrapper(Walk(**limits), noise=noise)
    env.reset(seed=3)
    return env


def candidates(*texts):
    return [Candidate(text) for text in texts]


def test_an_episode_plays_as_without_the_wrapper_and_every_turn_is_recorded():
    env, bare = walk(), Walk()
    assert bare.reset(seed=3) == env.reset(seed=3)
    for turn in ("Jump || Jump", "Left", "Jump", "junk"):
        assert env.step(turn) == bare.step(turn)
    env = walk()
    _, reward, *_, info = env.step("Jump || Left")
    env.step("Left")
    tree = env.tree
    assert env.cursor == 2
    assert list(tree.played) == [0, 1, 2]
    assert tree.path(2) == [0, 1, 2]
    assert tree.nodes[1].candidate.text == "Jump || Left"
    assert (tree.nodes[1].reward, tree.nodes[1].score, tree.nodes[1].info) == (reward, reward, info)
    assert (tree.nodes[2].snapshot, tree.spent) == (snapshot(env.env), Budget(env_steps=2))


def test_a_reset_begins_a_new_tree_with_its_seed_or_one_from_where_it_begins():
    env = walk()
    old = env.tree
    env.reset(seed=5)
    assert env.tree is not old
    assert (env.tree.seed, env.cursor, len(env.tree.nodes)) == (5, 0, 1)
    first, second = walk(), walk()
    assert first.reset() == second.reset()
    assert first.tree.seed == second.tree.seed
    env = TreeSearchWrapper(Walk())
    assert not env.started
    with pytest.raises(TsrGymError, match=r"call reset\(\) first"):
        env.tree  # noqa: B018


def test_expanding_moves_neither_the_cursor_nor_the_environment_and_draws_nothing_of_the_episode():
    env = walk()
    env.step("Right")
    before = snapshot(env.env)
    assert env.expand(0, candidates("Right", "Jump", "junk")) == [2, 3, 4]
    assert (env.tree.children(0), env.cursor) == ((1, 2, 3, 4), 1)
    assert snapshot(env.env) == before
    assert list(env.tree.played) == [0, 1]
    quiet, busy = walk(), walk()
    for env in (quiet, busy):
        env.step("Jump")
    busy.expand(0, candidates("Jump", "Jump"))
    busy.expand(1, candidates("Jump"))
    assert [quiet.step("Jump")[:2] for _ in range(2)] == [busy.step("Jump")[:2] for _ in range(2)]


def test_an_imagined_turn_is_what_the_environment_does_with_that_seed():
    env = walk()
    env.expand(0, candidates("Left", "Jump || Jump"))
    env.expand(2, candidates("Jump"))
    tree = env.tree
    # The seed of a child comes from the tree's seed, the noise, its parent's address and its number.
    twin = Walk()
    twin.restore(tree.nodes[0].snapshot, seed=derive_seed(3, "fresh", 1))
    assert twin.step("Jump || Jump")[0] == tree.nodes[2].observation
    twin.restore(tree.nodes[2].snapshot, seed=derive_seed(3, "fresh", 1, 0))
    assert twin.step("Jump")[0] == tree.nodes[3].observation


def test_fresh_noise_gives_every_child_its_own_dice_even_for_the_same_text():
    env = lake()
    new = env.expand(0, candidates(*["Up"] * 60))
    places = [env.tree.nodes[index].observation for index in new]
    # The ice carries one to the left, up or right, with a third each: four standard deviations of 60 throws.
    assert sorted(set(places)) == sorted({"_P_\n___\n_G_", "___\nP__\n_G_", "___\n__P\n_G_"})
    assert all(6 <= places.count(place) <= 34 for place in set(places))
    assert env.tree.spent == Budget(env_steps=60, restores=61, expansions=1)


def test_common_noise_is_shared_by_siblings_and_is_not_the_episodes_own():
    shared = [
        {env.tree.nodes[index].observation for index in env.expand(0, candidates(*["Up"] * 5))}
        for env in (lake("common", desc=ICE) for _ in range(2))
    ]
    assert (len(shared[0]), shared[0]) == (1, shared[1])
    env = walk("common")
    env.expand(0, candidates("Jump", "Left || Jump"))
    env.expand(0, candidates("Jump"))
    twin = Walk()
    for child in (1, 2, 3):
        twin.restore(env.tree.nodes[0].snapshot, seed=derive_seed(3, "common"))
        assert twin.step(env.tree.nodes[child].candidate.text)[0] == env.tree.nodes[child].observation
    differs = 0
    for seed in range(40):
        env = lake("common")
        env.reset(seed=seed)
        imagined = env.tree.nodes[env.expand(0, candidates("Up"))[0]].observation
        differs += imagined != env.step("Up")[0]
    assert 15 <= differs <= 38


def test_the_same_noise_sees_the_future_and_the_tree_says_so():
    for seed in range(10):
        env = lake("same")
        env.reset(seed=seed)
        imagined = env.tree.nodes[env.expand(0, candidates("Up || Left"))[0]]
        assert env.tree.about["clairvoyant"] is True
        assert env.step("Up || Left")[0] == imagined.observation
    assert lake("fresh").tree.about["clairvoyant"] is False


@pytest.mark.parametrize(
    ("env", "steps"),
    [
        # A turn of Walk may draw, so that it counts as drawing.
        (lambda: walk(), 4),
        (lambda: walk("common"), 2),
        (lambda: walk("same"), 2),
        (lambda: lake(is_slippery=False), 2),
        (lambda: lake(), 4),
        (lambda: lake("common"), 2),
    ],
    ids=["dice that may be drawn", "common dice", "same dice", "no dice at all", "fresh dice", "common ice"],
)
def test_equal_candidates_share_a_step_only_where_it_cannot_differ(env, steps):
    env = env()
    env.expand(0, candidates("Right", "Left", "Right", "Right"))
    assert (env.tree.spent.env_steps, len(env.tree.children(0))) == (steps, 4)
    assert [env.tree.nodes[index].candidate.text for index in (1, 2, 3, 4)] == ["Right", "Left", "Right", "Right"]


def test_what_was_imagined_does_not_depend_on_how_it_was_asked_for():
    together, apart = lake(), lake()
    together.expand(0, candidates("Up", "Up", "Left"))
    for text in ("Up", "Up", "Left"):
        apart.expand(0, candidates(text))
    assert [n.observation for n in together.tree.nodes] == [n.observation for n in apart.tree.nodes]
    assert [n.snapshot for n in together.tree.nodes] == [n.snapshot for n in apart.tree.nodes]


def test_an_ended_episode_can_be_neither_expanded_nor_stepped():
    env = walk(limits=Limits(max_turns=1))
    new = env.expand(0, candidates("Left"))
    with pytest.raises(EpisodeOver, match="node 1 ends its episode"):
        env.expand(new[0], candidates("Left"))
    env.step("Left")
    with pytest.raises(EpisodeOver):
        env.step("Left")


def test_the_cursor_goes_anywhere_and_a_new_tree_can_begin_there(tmp_path):
    env = walk()
    first, _ = env.reset(seed=3)
    env.step("Right || Right")
    env.expand(0, candidates("Left", "Jump"))
    observation, info = env.goto(2)
    assert observation == env.tree.nodes[2].observation == "You are at -1, the goal is at 7."
    assert info == env.tree.nodes[2].info
    env.step("Left")
    assert env.tree.path(env.cursor) == [0, 2, 4]
    # Turns after a jump into imagination are not the played episode.
    assert list(env.tree.played) == [0, 1]
    assert env.goto(0)[0] == first
    with pytest.raises(IndexError):
        env.goto(99)
    env = walk()
    env.step("Right")
    before = snapshot(env.env)
    tree = env.begin(8, noise="common")
    assert (tree.seed, len(tree.nodes), env.cursor, env.noise) == (8, 1, 0, "common")
    assert tree.nodes[0].snapshot == before
    assert tree.nodes[0].observation == "You are at 1, the goal is at 7."
    env = walk()
    env.step("Right")
    env.tree.save(tmp_path / "tree.jsonl", snapshots=False)
    env._tree = Tree.load(tmp_path / "tree.jsonl")
    with pytest.raises((TsrGymError, SnapshotError), match="saved without"):
        env.goto(0)
    with pytest.raises((TsrGymError, SnapshotError), match="saved without"):
        env.expand(0, candidates("Left"))


def test_nodes_keep_copies_of_what_was_handed_out():
    env = TreeSearchWrapper(Board())
    observation, info = env.reset(seed=1)
    board = observation.copy()
    observation[...] = 7
    info["mine"] = 1
    assert (env.tree.nodes[0].observation == board).all()
    assert "mine" not in env.tree.nodes[0].info
    observation, *_, info = env.step(3)
    board = observation.copy()
    observation[...] = 7
    info["mine"] = 1
    assert (env.goto(1)[0] == board).all()
    assert "mine" not in env.tree.nodes[1].info


def test_impossible_settings_are_refused_and_array_environments_can_be_searched():
    for settings in ({"repeats": 0}, {"repeats": 2, "risk": 1.5}, {"risk": "median"}, {"noise": "loud"}):
        with pytest.raises(ValueError, match=r"wanted (repeats|risk|noise) "):
            TreeSearchWrapper(Walk(), **settings)
    env = TreeSearchWrapper(Dice())
    env.reset(seed=1)
    assert env.expand(0, [0, np.int64(2)]) == [1, 2]
    assert [env.tree.nodes[index].candidate for index in (1, 2)] == [Candidate(0), Candidate(2)]
    assert all(env.tree.nodes[index].info["roll"] in range(1, 9) for index in (1, 2))
    # Statistics outside the tree do not get into it.
    env = RecordEpisodeStatistics(TreeSearchWrapper(Walk(Limits(max_turns=1))))
    env.reset(seed=1)
    assert "episode" in env.step("Left")[4]
    assert "episode" not in env.get_wrapper_attr("tree").nodes[1].info


def test_the_tree_knows_environment_rules_and_scores():
    env = TreeSearchWrapper(FrozenLakeScore(AnswerFormat(gym.make("tsr/FrozenLake-v0", desc=ICE, is_slippery=False))))
    env.reset(seed=1)
    env.step("<think></think><answer>Left</answer>")
    assert (env.tree.score_of, env.tree.about["env"]) == ("state", "tsr/FrozenLake-v0")
    assert env.tree.about["rules"]["desc"] == tuple(ICE)
    # One step to the left of the start, the goal is two fields away.
    assert (env.tree.nodes[1].score, walk().tree.score_of) == (-2.0, "turn")


class Wheel(StateEnv):
    """Turn a wheel of eight fields until it stands at the last: the observation is the field; a reward per field."""

    def __init__(self):
        super().__init__("wheel", limits=Limits(max_turns=9))
        self.action_space = self.observation_space = gym.spaces.Discrete(9)

    def initial(self, rng, options):
        return 0

    def transition(self, state, action, rng):
        turned = int(rng.integers(8)) if action else 0
        return Step(turned, float(turned), False, {})

    def observe(self, state):
        return state


def wheel(**settings):
    env = TreeSearchWrapper(Wheel(), **settings)
    env.reset(seed=3)
    return env


def draws(env, number):
    """Return the observations of child `number` of the first node on each of the wrapper's draws."""
    seeds = [derive_seed(3, "fresh", number), *(derive_seed(3, "draw", k, number) for k in range(1, env.repeats))]
    twin = Wheel()
    return [(twin.restore(env.tree.nodes[0].snapshot, seed=seed), twin.step(1)[1])[1] for seed in seeds]


def test_repeats_score_a_turn_by_several_draws_or_their_quantile_and_go_on_from_the_first():
    env = wheel(repeats=5)
    wanted = [draws(env, number) for number in range(3)]
    assert len({tuple(row) for row in wanted}) == 3
    for index, row in zip(env.expand(0, [1, 1, 1]), wanted, strict=True):
        node = env.tree.nodes[index]
        assert (node.reward, node.observation, node.info["score_draws"]) == (row[0], row[0], tuple(row))
        assert node.score == pytest.approx(sum(row) / 5)
    assert env.tree.spent == Budget(env_steps=15, restores=16, expansions=1)
    for risk, rank in ((0.0, 0), (0.25, 1), (0.5, 2), (1.0, 4)):
        env = wheel(repeats=5, risk=risk)
        (index,) = env.expand(0, [1])
        # Quantiles of five numbers at quarters are the sorted numbers themselves.
        assert env.tree.nodes[index].score == sorted(draws(env, 0))[rank]


def test_repeats_are_of_draws_that_differ():
    env = TreeSearchWrapper(gym.make("tsr/FrozenLake-v0", desc=ICE, is_slippery=False), repeats=7)
    env.reset(seed=1)
    (index,) = env.expand(0, ["Up"])
    assert env.tree.spent.env_steps == 1
    assert "score_draws" not in env.tree.nodes[index].info
    assert env.tree.about["repeats"] == 7
    env = wheel(noise="common", repeats=4)
    first, second = (env.tree.nodes[index] for index in env.expand(0, [1, 1]))
    assert first.info["score_draws"] == second.info["score_draws"]
    assert env.tree.spent.env_steps == 4
    assert len(set(first.info["score_draws"])) > 1
    with pytest.raises(ValueError, match='wanted noise "fresh" or "common"'):
        wheel(noise="same", repeats=2).expand(0, [1])
    assert wheel(repeats=2).expand(0, [1], noise="common") == [1]


class Pairs(Dice):
    """Dice with two numbers as an action, of which the second is an array."""

    def transition(self, state, action, rng):
        return super().transition(state, action[0] + int(action[1].sum()), rng)


def test_actions_without_a_hash_are_tried_one_by_one():
    env = TreeSearchWrapper(Pairs(), noise="common")
    env.reset(seed=1)
    new = env.expand(0, [Candidate((1, np.array([1]))), Candidate((1, np.array([1]))), Candidate((0, np.array([2])))])
    assert len({env.tree.nodes[index].observation for index in new}) == 1
    assert env.tree.spent == Budget(env_steps=3, restores=4, expansions=1)


def test_what_was_tried_before_a_turn_raised_is_in_the_tree_and_was_paid_for():
    env = walk(limits=Limits(max_turns=1))
    ended = env.expand(0, candidates("Left"))[0]
    before = snapshot(env.env)
    with pytest.raises(EpisodeOver):
        env.expand_each([(0, candidates("Right", "Jump")), (ended, candidates("Left"))])
    assert len(env.tree.children(0)) == 3
    assert env.tree.spent == Budget(env_steps=3, restores=5, expansions=2)
    assert snapshot(env.env) == before


def test_clones_and_restores_imagine_in_an_environment_of_their_own():
    env = walk()
    env.step("Right")
    twin = clone(env)
    env.step("Right")
    before = snapshot(env.env)
    twin.expand(0, candidates("Jump", "Left"))
    assert (snapshot(env.env), len(env.tree.nodes)) == (before, 3)
    twin.step("Left")
    assert (env.unwrapped.state.position, twin.unwrapped.state.position) == (2, 0)
    env = walk()
    env.step("Right")
    snap = snapshot(env)
    env.step("Left")
    restore(env, snap)
    assert (env.cursor, len(env.tree.nodes), env.tree.seed) == (0, 1, 3)
    assert env.tree.nodes[0].observation == "You are at 1, the goal is at 7."
    assert snapshot(env) == snap


def test_a_recorder_that_comes_later_is_there_from_the_next_episode_on():
    env = TreeSearchWrapper(gym.make("CartPole-v1"))
    env.reset(seed=1)
    replayable(env)
    first, _ = env.reset(seed=1)
    left, right = env.expand(0, [0, 1])
    env.goto(left)
    observation = env.step(1)[0]
    bare = gym.make("CartPole-v1")
    assert np.array_equal(bare.reset(seed=1)[0], first)
    bare.step(0)
    assert np.array_equal(bare.step(1)[0], observation)
    assert "replayed" in env.tree.nodes[right].snapshot.layers[-1].kind


class Quiet(gym.Wrapper):
    """Holds nothing."""


def test_a_wrapper_that_begins_to_hold_something_ends_the_search():
    env = TreeSearchWrapper(Quiet(Walk()))
    env.reset(seed=3)
    env.expand(0, candidates("Right"))
    env.env.memory = 1
    with pytest.raises(SnapshotError, match=r"Quiet .* holds memory"):
        env.expand(0, candidates("Left"))


def test_nodes_in_the_same_state_know_each_other():
    env = walk()
    env.expand(0, ["Right", "Left", "Right || Left"])
    env.expand(1, ["Left", "Right"])
    tree = env.tree
    # 0: at 0; 1: at 1; 2: at -1; 3: at 0 after two actions; 4: at 0 after two turns; 5: at 2.
    assert tree.twins(0, turns=False) == tree.twins(4, turns=False) == [0, 3, 4]
    assert (tree.twins(4, turns=True), tree.num_transpositions) == ([4], 2)
    assert tree.key(1, turns=False) == Walk().state_key(env.unwrapped.state._replace(position=1))


def test_an_episode_begins_in_the_middle_with_dice_of_its_own_but_not_after_its_end():
    env = walk()
    env.step("Right || Right")
    env.step("Right")
    moment = env.tree.nodes[2].snapshot
    observation, info = env.reset(seed=9, options={"snapshot": moment})
    assert observation == env.tree.nodes[0].observation == "You are at 3, the goal is at 7."
    assert (info["turns_left"], info["actions_left"], env.tree.seed) == (4, 7, 9)
    assert env.tree.nodes[0].snapshot != moment
    landings = {(env.reset(seed=seed, options={"snapshot": moment}), env.step("Jump")[0])[1] for seed in range(20)}
    assert landings == {f"You are at {place}, the goal is at 7." for place in (4, 5, 6)}
    env = walk()
    env.reset(seed=1)
    while not env.tree.nodes[env.cursor].done:
        env.step("Left")
    with pytest.raises(SnapshotError, match="of a running episode"):
        env.reset(options={"snapshot": env.tree.nodes[env.cursor].snapshot})
    with pytest.raises(SnapshotError, match="wanted a snapshot of"):
        env.reset(options={"snapshot": wheel().tree.nodes[0].snapshot})
