"""The Sokoban environment: words, settings, levels and splits."""

import gymnasium as gym
import pytest

from tests.tsr_gym_envs.sokoban.boards import rows_of, state_of
from tests.tsr_gym_envs.sokoban.test_symmetry import trimmed, turned
from tsr_gym import ConfigError, InvalidLevel, TsrGymError
from tsr_gym_envs.sokoban.env import SokobanEnv, SokobanSettings, make
from tsr_gym_envs.sokoban.rules import ACTIONS

#        0123456
LEVEL = "#######\n#@ $ .#\n#######"
TWO = "#######\n#@$.  #\n# $.  #\n#     #\n#######"


def room(**settings):
    return gym.make("tsr/Sokoban-v0", **settings)


def started(**settings):
    env = room(**settings)
    env.reset(seed=1)
    return env


def test_an_episode_is_paid_as_the_paper_says():
    env = started(level=LEVEL)
    observation, reward, terminated, truncated, info = env.step("Right || Right")
    assert observation == "#######\n#__PXO#\n#######"
    assert reward == pytest.approx(-0.2)
    assert (terminated, truncated, info["success"]) == (False, False, False)
    observation, reward, terminated, truncated, info = env.step("Right")
    assert observation == "#######\n#___P√#\n#######"
    assert reward == pytest.approx(-0.1 + 1 + 10)
    assert (terminated, truncated, info["success"]) == (True, False, True)


def test_a_move_against_a_wall_counts_and_pays_its_step():
    env = started(level=LEVEL)
    _, reward, *_, info = env.step("Up || Left")
    assert reward == pytest.approx(-0.2)
    assert info["executed"] == ("Up", "Left")
    assert info["action_is_valid"] is True
    assert info["action_is_effective"] is False
    assert info["actions_left"] == 8


@pytest.mark.parametrize("word", ["right", "RIGHT", " rIGHT\t"])
def test_words_count_in_any_case(word):
    env = started(level=LEVEL)
    assert env.step(word)[0] == "#######\n#_PX_O#\n#######"


@pytest.mark.parametrize("word", ["r", "4", "East", "push right", "Right!"])
def test_other_words_mean_nothing(word):
    env = started(level=LEVEL)
    assert env.step(word)[4]["action_is_valid"] is False
    assert env.unwrapped.state == state_of(LEVEL.split("\n"))


def test_every_reward_is_a_keyword():
    env = started(level=TWO, reward_step=0.5, reward_box=-2.0, reward_done=100.0)
    assert env.step("Right")[1] == 0.5 - 2.0
    assert env.step("Left || Down || Right")[1] == pytest.approx(3 * 0.5 - 2.0 + 100.0)


def test_a_position_can_be_given_for_one_episode():
    env = room(level=LEVEL)
    env.reset(seed=1, options={"level": TWO})
    assert rows_of(env.unwrapped.state) == TWO.split("\n")
    env.reset()
    assert rows_of(env.unwrapped.state) == LEVEL.split("\n")


@pytest.fixture
def folder(tmp_path):
    for split, count in (("train", 3), ("valid", 1)):
        (tmp_path / split).mkdir()
        floors = [" " * number for number in range(1, count + 1)]
        (tmp_path / split / "000.txt").write_text(
            "\n\n".join(f"#####{'#' * len(f)}\n#@$.{f}#\n#####{'#' * len(f)}" for f in floors)
        )
    return tmp_path


def test_levels_come_from_files_and_depend_on_the_seed(folder):
    env = room(levels=str(folder), split="train")
    seen = set()
    for seed in range(30):
        first = env.reset(seed=seed)[0]
        assert env.reset(seed=seed)[0] == first
        seen.add(first)
    assert len(seen) == 3
    assert room(levels=str(folder), split="valid").reset(seed=1)[0] == "######\n#PXO_#\n######"
    assert room(levels=str(folder / "valid" / "000.txt")).reset(seed=1)[0] == "######\n#PXO_#\n######"


def test_boxoban_levels_can_be_played(shared):
    env = room(levels=str(shared / "data/sokoban/boxoban/unfiltered"), split="valid", max_turns=None, max_actions=None)
    observation, _ = env.reset(seed=3)
    assert observation.count("X") + observation.count("√") == 4
    while not env.unwrapped.state.solved:
        env.step(env.unwrapped.optimal_turn(env.unwrapped.state, None, None))
    assert env.unwrapped.success_bars(env.unwrapped.state) is None


def test_splits_share_no_room_even_when_it_is_turned_mirrored_or_shifted():
    found = {}
    for split in ("train", "valid", "test"):
        env = room(split=split, dim=(5, 5), solution_length=(1, 6))
        for seed in range(40):
            env.reset(seed=seed)
            rows = trimmed(rows_of(env.unwrapped.state))
            for turns in range(4):
                for mirrored in (False, True):
                    found.setdefault(tuple(turned(rows, turns, mirrored)), set()).add(split)
    assert all(len(splits) == 1 for splits in found.values())
    assert {split for splits in found.values() for split in splits} == {"train", "valid", "test"}


def test_playing_the_optimal_turns_solves_every_room():
    env = room()
    for seed in range(40):
        env.reset(seed=seed)
        base = env.unwrapped
        assert base.success_bars(base.state)[1] == 1.0
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(base.optimal_turn(base.state, None, None))
            over = terminated or truncated
        assert info["success"]


def test_a_deadlocked_position_has_no_optimal_turn():
    env = started(level="######\n#@ . #\n#    #\n#$   #\n######")
    assert env.unwrapped.optimal_turn(env.unwrapped.state, 5, 10) is None
    assert env.unwrapped.dead_end(env.unwrapped.state) == "dead square"
    assert env.unwrapped.success_bars(env.unwrapped.state) == (0.0, 0.0)


def test_the_bars_respect_all_limits():
    # The solution takes three moves.
    for limits, best in (
        ({"max_actions": 3}, 1.0),
        ({"max_actions": 2}, 0.0),
        ({"max_turns": 1, "max_actions_per_turn": 2}, 0.0),
        ({"max_turns": 2, "max_actions_per_turn": 2}, 1.0),
    ):
        env = started(level=LEVEL, **limits)
        assert env.unwrapped.success_bars(env.unwrapped.state)[1] == best
    env = started(level=LEVEL, max_actions=3)
    assert env.unwrapped.success_bars(env.unwrapped.state)[0] == 1 / 64


def test_a_key_names_walls_goals_boxes_and_player_and_nothing_else():
    base = make()
    boards = {
        LEVEL,
        LEVEL.replace("@ ", " @"),
        LEVEL.replace("$ ", " $"),
        LEVEL.replace(" .", ". "),
        "#######\n#@#$ .#\n#######",
        "######\n#@ $.#\n######",
    }
    assert len({base.state_key(state_of(board.split("\n"))) for board in boards}) == len(boards)
    ragged = state_of(["  ####", "###.@#", "#  $ #", "######"])
    full = state_of(["######", "###.@#", "#  $ #", "######"])
    assert base.state_key(ragged) == base.state_key(full)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "mine"}, r"preset of \['paper', 'tsr-code'\]"),
        ({"colour": "blue"}, r"unknown settings \['colour'\]"),
        ({"obs_type": "image"}, "wanted obs_type"),
        ({"split": "dev"}, "wanted split"),
        ({"level": LEVEL, "levels": "x"}, "wanted level or levels, got both"),
        ({"dim": (3, 3)}, "dim between"),
        ({"num_boxes": 30}, "boxes in a 6x6 room"),
        ({"solution_length": (0, 1)}, "shortest"),
        ({"max_actions": 0}, "wanted max_actions >= 1"),
        ({"render_mode": "video"}, "wanted a render_mode"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=message):
        make(**settings)


def test_malformed_levels_are_refused_when_they_are_given(tmp_path):
    with pytest.raises(InvalidLevel, match="row 2, column 2"):
        make(level="#####\n#X$.#\n#####")
    with pytest.raises(InvalidLevel, match="no such file"):
        make(levels=str(tmp_path / "nowhere"))
    env = make()
    with pytest.raises(InvalidLevel, match="wanted one player"):
        env.reset(options={"level": "#####\n# $.#\n#####"})
    with pytest.raises(ConfigError, match=r"got \['map'\]"):
        env.reset(options={"map": "x"})


def test_a_transition_that_drew_noise_would_be_found_out():
    class Noisy(SokobanEnv):
        def transition(self, state, action, rng):
            return super().transition(state, ACTIONS[rng.integers(4)], rng)

    env = Noisy(SokobanSettings(level=LEVEL))
    env.reset(seed=1)
    with pytest.raises(TsrGymError, match="draws_noise = False"):
        env.step("Up")


def test_the_presets_are_the_papers_and_its_codes():
    paper, code = room().unwrapped.settings, room(preset="tsr-code").unwrapped.settings
    assert (paper.obs_type, paper.max_actions_per_turn) == ("grid", 5)
    assert (code.obs_type, code.max_actions_per_turn) == ("grid_coord", 2)
    for settings in (paper, code):
        assert (settings.max_turns, settings.max_actions, settings.dim, settings.num_boxes) == (5, 10, (6, 6), 1)
        assert (settings.reward_step, settings.reward_box, settings.reward_done) == (-0.1, 1.0, 10.0)
    assert room().unwrapped.legal_actions(None) == ACTIONS
