"""The curricula of embedded base models: worlds of words, and worlds of symbols."""

import json
from dataclasses import replace

import gymnasium as gym
import pytest
import torch

from tests.agents.teaching import foreign_shop
from tsr_gym import ConfigError
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.models.language_model import load_policy
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.models.tokenizer import END
from tsr_gym.agents.teaching import curricula as module
from tsr_gym.agents.teaching.base_model import build_base_model
from tsr_gym.agents.teaching.base_recipe import BaseRecipe, WordRecipe, recipe_for, taught_world
from tsr_gym.tree import Candidate

ENV = "tests.agents.teaching.foreign_shop:my/Errand-v0"
CPU = torch.device("cpu")
SMALL = WordRecipe(
    steps=200, instances=128, batch=16, validations=64, poor_steps=120, burst=10, band=(0.02, 0.3), copies=0.9
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign") / "model"
    notes = []
    return folder, build_base_model(ENV, folder, SMALL, keep_skilled=True, note=notes.append), notes


def test_a_foreign_world_gets_a_model_that_plays_it_well_and_then_poorly_with_its_card(built):
    folder, about, notes = built
    assert about["success_skilled"] > 0.6
    assert about["success"] <= 0.3
    assert about["valid"] >= 0.7
    assert json.loads((folder / "tsr_gym.json").read_text())["about"]["success_skilled"] == about["success_skilled"]
    assert any(text.startswith("copies 8 words after") for text in notes)
    card = load_policy(built[0], device=CPU).card
    assert (card.prompt, card.history, card.max_tokens, card.env) == ("words", "full", 6, ENV)
    assert card.learn == {"lr": 2e-4, "critic_lr": 1e-3, "filter": "mixed_success"}
    folder, about, _ = built
    player = ModelPlayer(ENV, TaskConfig(), ModelConfig(), load_policy(folder / "skilled", device=CPU))
    from tsr_gym.agents.teaching.base_model import _measure

    assert _measure(player, SMALL).success == about["success_skilled"]
    vocabulary = load_policy(built[0], device=CPU).tokenizer.get_vocab()
    added = [f"Ġ{word}" if f"Ġ{word}" in vocabulary else f" {word}" for word in (*foreign_shop.NAMES, "lamp", "bring")]
    assert set(added) <= set(vocabulary)


def test_demonstrations_are_the_prompts_and_answers_of_the_model(built):
    policy = load_policy(built[0], device=CPU)
    player = ModelPlayer(ENV, TaskConfig(), ModelConfig(), policy)
    pool = player.pool("train")
    chat = player.chat_about(pool.base, temperature=1.0)
    teaching = pool.base.teaching()
    (row,) = module._demonstrate_words(pool, chat, module._WordPlay(teaching, 1.0), [3], 1)
    name, thing = pool.base.state.name, pool.base.state.thing
    text = policy.tokenizer.decode(row.ids)
    assert text == (
        f"<user> here is {name} turn 1<assistant> <answer> ask {name} </answer><|im_end|>"
        f"<user> wants the {thing} turn 2<assistant> <answer> bring {thing} </answer>"
    )
    assert policy.tokenizer.decode(row.ids[row.learned]) == f" ask {name} </answer> bring {thing} </answer>"


def test_rejected_episodes_are_left_out_of_good_play_alone(built):
    player = ModelPlayer(ENV, TaskConfig(), ModelConfig(), load_policy(built[0], device=CPU))
    pool = player.pool("train")
    chat = player.chat_about(pool.base, temperature=1.0)
    clumsy = replace(pool.base.teaching(), teacher_turn=foreign_shop.poor_turn)
    assert module._demonstrate_words(pool, chat, module._WordPlay(clumsy, 1.0), range(1, 20), 1) == []
    poor = module._demonstrate_words(pool, chat, module._WordPlay(clumsy, 0.1, malformed=0.5), range(1, 20), 1)
    assert len(poor) == 19
    closing = player.policy.tokenizer.convert_tokens_to_ids(" </answer>")
    broken = sum(row.ids[-1] != closing for row in poor)
    assert 0 < broken < 19


def test_the_models_episodes_with_an_invalid_answer_are_kept_up_to_it(built):
    pool = ModelPlayer(ENV, TaskConfig(), ModelConfig(), load_policy(built[0], device=CPU)).pool("train")

    def answer(tree, wish):
        words = str(tree.nodes[wish.node].observation).split()
        # With anna the second answer is invalid, with boris none is, with the others the first is.
        text = f"ask {words[-1]}" if words[0] == "here" and words[-1] == "anna" else "bring nothing"
        return Candidate(f"<answer> {'bring lamp' if words[-1] == 'boris' else text} </answer>")

    tasks = list(range(1, 30))
    slips = module._slips(pool, lambda wishes: [[answer(*wish)] for wish in wishes], tasks)
    people = {task: pool.set([task])[0].unwrapped.state.name for task in tasks}
    assert {"anna", "boris", "carla"} <= set(people.values())
    assert [slip.task for slip in slips] == [task for task in tasks if people[task] != "boris"]
    for slip in slips:
        texts = [candidate.text for candidate in slip.answers]
        asked = ["<answer> ask anna </answer>"] if people[slip.task] == "anna" else []
        assert texts == [*asked, "<answer> bring nothing </answer>"]


def test_the_teacher_continues_before_and_after_a_slip_and_the_slip_is_not_learned(built):
    policy = load_policy(built[0], device=CPU)
    player = ModelPlayer(ENV, TaskConfig(), ModelConfig(), policy)
    pool = player.pool("train")
    chat = player.chat_about(pool.base, temperature=1.0)
    ids = policy.tokenizer(" bring anna </answer>", add_special_tokens=False)["input_ids"]
    root = pool.set([3])[0].tree
    slip = Candidate("<answer> bring anna </answer>", chat.prompt_ids(root, root.ROOT), tuple(ids))
    play = module._WordPlay(pool.base.teaching(), 1.0)
    before, after = module._correct(pool, chat, play, [module._Slip(3, (slip,))])
    name, thing = pool.base.state.name, pool.base.state.thing
    good = f" ask {name} </answer> bring {thing} </answer>"
    assert [policy.tokenizer.decode(row.ids[row.learned]) for row in (before, after)] == [good, good]
    assert "bring anna" not in policy.tokenizer.decode(before.ids)
    shown = policy.tokenizer.decode(after.ids)
    assert shown.startswith(
        f"<user> here is {name} turn 1<assistant> <answer> bring anna </answer><|im_end|><user> here is"
    )


def test_a_model_is_corrected_in_the_middle_of_its_first_stage(tmp_path):
    notes = []
    recipe = replace(SMALL, steps=40, corrections=16, poor_steps=0, band=(0.0, 1.0))
    build_base_model(ENV, tmp_path / "model", recipe, note=notes.append)
    lines = [text for text in notes if text.startswith(("step", "corrected"))]
    assert [text.split()[1] for text in lines if text.startswith("step")] == ["8", "16", "24", "32", "40"]
    assert lines[3].startswith("corrected in ")
    assert "16 episodes" in lines[3]


@pytest.mark.parametrize(
    ("player", "error", "message"),
    [
        ("ghost", ConfigError, "there is no poor player 'ghost'"),
        (f"{foreign_shop.__name__}:poor_turn(p_choose=0.5)", ConfigError, "the poor player .* has no .'p_choose'."),
        (f"{foreign_shop.__name__}:sulking_turn", RuntimeError, "asked to play poorly"),
    ],
)
def test_the_poor_player_of_a_recipe_replaces_the_worlds(tmp_path, player, error, message):
    recipe = replace(SMALL, steps=1, copies=0.0, poor_player=player)
    with pytest.raises(error, match=message):
        build_base_model(ENV, tmp_path / "model", recipe)


def test_a_recipe_of_the_wrong_type_is_refused(tmp_path):
    assert isinstance(recipe_for(ENV), WordRecipe)
    assert type(recipe_for("sokoban")) is BaseRecipe
    # A world's teaching may change the recipe's defaults.
    assert recipe_for(ENV) == recipe_for("retrieval_qa") == WordRecipe()
    assert recipe_for("webshop") == WordRecipe(**gym.make("tsr/WebShop-v0").unwrapped.teaching().recipe)
    assert recipe_for("webshop").corrections > 0
    assert taught_world("sokoban").env_settings == {"obs_type": "compact"}
    with pytest.raises(ConfigError, match=r"wanted a WordRecipe for .*Errand-v0, got a BaseRecipe"):
        build_base_model(ENV, tmp_path / "model", BaseRecipe())
    with pytest.raises(ConfigError, match=r"wanted a BaseRecipe for tsr/Sokoban-v0, got a WordRecipe"):
        build_base_model("sokoban", tmp_path / "model", SMALL)


def test_demonstrations_are_optimal_random_or_malformed_by_the_shares_of_the_recipe():
    pool = EnvPool("sokoban", {"obs_type": "compact", "split": "train"}, think=False)

    class Spelling:
        """Prompts and tokens of a policy, as plain text."""

        def prompt_ids(self, tree, node):
            return tree, node

        def tokenizer(self, text, add_special_tokens):
            return {"input_ids": [text]}

    teaching = pool.base.teaching()

    def shown(stray, **shares):
        play = module._Play(teaching.teacher_turn, stray, **shares)
        return module._demonstrate(pool, Spelling(), play, range(1, 91))

    def outcome(example):
        tree, node = example.prompt
        return tree.nodes[tree.children(node)[0]]

    best = shown(teaching.poor_turn, skill=1.0, malformed=0.0)
    assert all(outcome(example).info["action_is_valid"] for example in best)
    # Training rooms have solutions of at most ten moves, five to a turn: two optimal turns solve each room.
    ends = [outcome(example) for example in best if outcome(example).done]
    assert len(ends) == 90
    assert all(node.info["success"] and node.depth <= 2 for node in ends)
    poor = shown(teaching.poor_turn, skill=0.0, malformed=0.5)
    texts = [example.answer[0] for example in poor]
    # A third of the malformed answers drop the separators, which leaves an answer of one action valid.
    bad = sum(not outcome(example).info["action_is_valid"] for example in poor) / len(poor)
    assert 0.28 <= bad <= 0.52
    assert any(text.endswith(END) for text in texts)
    assert sum("||" not in text for text in texts) / len(texts) > 0.7


def test_only_the_answers_are_learned():
    ids, labels = module._padded([module._Example((5, 6, 7), (8, 9)), module._Example((1,), (2,))])
    assert ids.tolist() == [[5, 6, 7, 8, 9], [1, 2, 0, 0, 0]]
    assert labels.tolist() == [[-100, -100, -100, 8, 9], [-100, 2, -100, -100, -100]]
