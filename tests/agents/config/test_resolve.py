"""Resolve: sources in their order, recipes and files, three doors with one result, and one binding of each choice."""

import pytest

from tsr_gym import ConfigError, keywords
from tsr_gym.agents.cli.train import read_config, read_train
from tsr_gym.agents.config import TrainConfig, collect_settings, resolve
from tsr_gym.agents.config.recipes import parse_config, read_recipe, shipped_recipes
from tsr_gym.agents.models.settings import ModelCard

CARD = ModelCard(learn={"lr": 0.25, "minibatch": 7, "groups": 5})


def test_a_later_source_wins_and_every_setting_knows_its_source():
    file = parse_config("[learn]\nminibatch = 9\n[search]\nnaive = 6", "mine.toml")
    settings = collect_settings("sokoban", recipe="levin", card=CARD, file=file, given={"naive": 2})
    expected = {"lr": (0.25, "card"), "groups": (16, "recipe"), "minibatch": (9, "file"), "naive": (2, "flag")}
    expected["epochs"] = (1, "default")
    assert {name: tuple(settings[name]) for name in expected} == expected


@pytest.mark.parametrize(
    ("env", "guide"),
    [
        ("sokoban", "SokobanScore(potential='next_push')"),
        ("tsr/FrozenLake-v0", "FrozenLakeScore"),
        ("retrieval_qa", "RetrievalQAScore(kind='novelty')"),
    ],
)
def test_a_guided_recipe_uses_the_public_guide_of_the_world(env, guide):
    config = resolve(env, recipe="tsr+", card=CARD)
    assert (config.task.score, config.search.name) == (guide, "beam")


def test_a_world_without_a_public_guide_is_searched_without_one_unless_a_score_is_given():
    config = resolve("examples.stairs:my/Stairs-v0", recipe="tsr+", card=CARD)
    assert (config.task.score, config.search.search) == ("reward", "levin(expansions=60)")
    config = resolve("examples.stairs:my/Stairs-v0", recipe="tsr+", card=CARD, given={"score": "RewardScore"})
    assert (config.task.score, config.search.name) == ("RewardScore", "beam")


@pytest.mark.parametrize("name", shipped_recipes())
@pytest.mark.parametrize("env", ["sokoban", "frozenlake", "webshop", "retrieval_qa"])
def test_every_recipe_of_the_package_is_a_configuration_of_every_world(name, env):
    assert resolve(env, recipe=name, card=ModelCard()).env == env
    assert read_recipe(name).description


def test_a_recipe_has_settings_of_its_own_for_a_world():
    config = resolve("webshop", recipe="paper", card=ModelCard())
    assert (config.run.updates, config.learn.algorithm, config.task.score) == (100, "grpo", "WebShopScore")


@pytest.mark.parametrize(
    ("args", "search", "keeps"),
    [
        (["--search", "beam", "--width", "3"], "beam(width=3)", "uncertainty"),
        (["--search=beam(width=3)", "--branching=5"], "beam(width=3, branching=5)", "uncertainty"),
        (["--keep", "0.5"], "naive", "uncertainty(ratio=0.5)"),
        (["--filter", "mixed_success", "--keep", "0.5"], "naive", "mixed_success(ratio=0.5)"),
        (["--filter", "top_p", "--keep", "0.9"], "naive", "top_p(p=0.9)"),
    ],
)
def test_numbers_of_calls_may_be_flags(args, search, keeps):
    settings = read_train(["sokoban", *args]).settings
    assert (settings["search"].value, settings["filter"].value) == (search, keeps)


@pytest.mark.parametrize(
    ("args", "facts"),
    [
        (["--search", "puct(simulations=4)", "--branching", "9"], "the strategy 'puct' has no branching"),
        (["--search", "beam(width=3)", "--width", "7"], "width=7"),
        (["--search", "naive", "--depth", "2"], "the strategy 'naive' has no depth"),
        (["--filter", "varied", "--keep", "0.5"], "has no ratio"),
        (["--recipe", "tsr"], "did you mean tsr\\+"),
        (["--recipe", "missing.toml"], "missing.toml"),
        (["--config", "missing.toml"], "missing.toml"),
    ],
)
def test_a_wrong_choice_is_refused_with_its_name(args, facts):
    with pytest.raises(ConfigError, match=facts):
        read_config(["sokoban", *args])


def test_three_doors_give_the_same_file_byte_for_byte(tmp_path):
    (tmp_path / "mine.toml").write_text('env = "sokoban"\nrecipe = "levin"\n[run]\nupdates = 40\nseed = 3\n')
    flags = read_config(["sokoban", "--recipe", "levin", "--updates", "40", "--seed", "3"])
    file = read_config(["--config", str(tmp_path / "mine.toml")])
    python = TrainConfig.from_recipe("levin", env="sokoban", updates=40, seed=3)
    texts = [flags.to_toml(), file.to_toml()]
    assert texts == [python.to_toml()] * 2
    # The file of a run repeats it, also when defaults change.
    (tmp_path / "run.toml").write_text(texts[0])
    assert read_config(["--config", str(tmp_path / "run.toml")]).to_toml() == texts[0]


def test_flags_win_over_a_file_also_where_they_repeat_a_default(tmp_path):
    (tmp_path / "mine.toml").write_text('env = "sokoban"\n[search]\nnaive = 4\n[learn]\nrecompute = true\n')
    settings = read_train(["--config", str(tmp_path / "mine.toml"), "--naive", "0", "--no-recompute"]).settings
    assert tuple(settings["naive"]) == (0, "flag")
    assert tuple(settings["recompute"]) == (False, "flag")


def test_the_words_of_a_choice_become_a_bound_value_by_one_call(monkeypatch):
    parsed = []
    parse_call = keywords.parse_call

    def count(text, **options):
        parsed.append(text)
        return parse_call(text, **options)

    monkeypatch.setattr(keywords, "parse_call", count)
    config = read_config(["sokoban", "--search", "beam(width=2)", "--trajectories", "2"])
    assert parsed.count("beam(width=2)") == 1
    assert config.search.search.bound.keywords == {"width": 2}


def test_a_setting_of_a_card_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match=r"tsr_gym\.json.*'speed'"):
        resolve("sokoban", card=ModelCard(learn={"speed": 3}))


def test_an_unknown_keyword_of_the_python_door_is_refused_with_the_one_that_was_meant():
    with pytest.raises(ConfigError, match="did you mean updates"):
        TrainConfig.from_recipe("levin", env="sokoban", update=40)
    with pytest.raises(ConfigError, match="wanted updates as a whole number, got '40'"):
        TrainConfig.from_recipe("levin", env="sokoban", updates="40")
