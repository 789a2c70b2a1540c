"""ModelPlayer and Proposer: the policy that a configuration names, and the turns that it proposes."""

from dataclasses import replace
from typing import NamedTuple

import pytest
import torch

from tests.agents.reports.view.trees import node
from tests.agents.tiny import CHATML, save_chat_model
from tests.agents.tools import HERMES
from tsr_gym import ConfigError
from tsr_gym.agents.episodes.model_player import ModelPlayer, Proposal, Proposer
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.models.language_model import load_policy
from tsr_gym.agents.models.settings import ModelCard, ModelConfig
from tsr_gym.tree import Candidate, Expand

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def small(base_model):
    return load_policy(base_model, device=CPU)


@pytest.fixture(scope="module")
def large(chat_model):
    return load_policy(chat_model, device=CPU)


def settings_of(player, split=None):
    return player.pool(split).base.settings


def test_settings_come_from_preset_split_and_card_of_the_same_environment(small):
    task = TaskConfig(preset="tsr-code", env_set=("num_boxes=2", "max_turns=3"))
    found = settings_of(ModelPlayer("sokoban", task, ModelConfig(), small), "valid")
    # The preset shows grid and coordinates; the card of the small model wants the compact form.
    assert (found.preset, found.max_actions_per_turn, found.obs_type) == ("tsr-code", 2, "compact")
    assert (found.split, found.num_boxes, found.max_turns) == ("valid", 2, 3)
    other = TaskConfig(env_set=("obs_type=coord",))
    assert settings_of(ModelPlayer("sokoban", other, ModelConfig(), small)).obs_type == "coord"
    assert settings_of(ModelPlayer("sokoban", TaskConfig(), ModelConfig(), small)).split == "all"
    with pytest.raises(ConfigError, match=r"made for tsr/Sokoban-v0, wanted is tsr/FrozenLake-v0: use another --model"):
        ModelPlayer("frozen_lake", TaskConfig(), ModelConfig(), small)
    ModelPlayer("tsr/Sokoban-v0", TaskConfig(), ModelConfig(), small)


def test_prompt_history_and_answer_form_are_the_cards_unless_configured(small, large):
    chat = ModelPlayer("sokoban", TaskConfig(), ModelConfig(), small).chat("", temperature=1.0)
    assert (chat.prompt.forced, chat.history.turns) == ("<answer>", 0)
    chat = ModelPlayer("sokoban", TaskConfig(), ModelConfig(), large).chat("Rules.", temperature=1.0)
    assert (chat.prompt.forced, chat.history.turns) == ("<think>", None)
    assert "Rules." in chat.prompt.system
    changed = ModelConfig(prompt="paper", history="window(2)")
    chat = ModelPlayer("sokoban", TaskConfig(), changed, small).chat("", temperature=1.0)
    assert (chat.prompt.forced, chat.history.turns) == ("<think>", 2)
    for policy, think in ((small, False), (large, True)):
        (env,) = ModelPlayer("sokoban", TaskConfig(), ModelConfig(), policy).pool(None).set([1])
        assert env.get_wrapper_attr("think") == think


@pytest.mark.parametrize(("card", "wanted", "most"), [(16, 400, 16), (16, 9, 9), (None, 400, 400)])
def test_an_answer_is_as_long_as_configuration_and_card_both_allow(large, card, wanted, most):
    policy = large._replace(card=ModelCard(max_tokens=card))
    player = ModelPlayer("sokoban", TaskConfig(), ModelConfig(max_tokens=wanted), policy)
    chat = player.chat("", temperature=1.0)
    assert player.max_tokens == chat.engine.max_tokens == most
    assert f"at most {most} tokens" in chat.prompt.turn(player.pool(None).set([1])[0].tree.nodes[0])


def test_the_engine_stops_where_the_prompt_ends_answers_and_keeps_values_only_where_prompts_grow(small, large):
    chat = ModelPlayer("sokoban", TaskConfig(), ModelConfig(engine="transformers"), small).chat("", temperature=0.7)
    ends = [small.tokenizer.eos_token_id, small.tokenizer.convert_tokens_to_ids("</answer>")]
    assert (chat.engine._stop.tolist(), chat.engine.temperature) == (sorted(ends), 0.7)
    # Whether keys and values are kept shows in what is saved.
    prompt = [5, 6, 7]

    def saved(policy, history):
        player = ModelPlayer("sokoban", TaskConfig(), ModelConfig(history=history, max_tokens=8), policy)
        engine = player.chat("", temperature=1.0).engine
        said = engine.generate([prompt], seeds=[[1]])[0][0].token_ids
        return engine.generate([[*prompt, *said, 8]], seeds=[[1]])[0][0].num_cached

    assert saved(large, "full") > 0
    assert saved(large, "markov") == 0


def test_a_card_with_an_unknown_prompt_is_refused(large):
    policy = large._replace(card=replace(large.card, prompt="verbose"))
    with pytest.raises(ConfigError, match=r"wanted a prompt of \['compact', 'paper', .*'words'\], got 'verbose'"):
        ModelPlayer("sokoban", TaskConfig(), ModelConfig(), policy).chat("", temperature=1.0)


def test_an_environment_with_a_protocol_of_its_own_is_played_in_its_own_words(large):
    player = ModelPlayer("retrieval_qa", TaskConfig(), ModelConfig(), large)
    pool = player.pool("train")
    chat = player.chat_about(pool.base, temperature=1.0)
    assert (chat.prompt.system, chat.prompt.forced) == (pool.base.instructions, "")
    (env,) = pool.set([1])
    _, _, _, _, info = env.step("<think>first</think><search>anything</search>")
    assert info["action_is_valid"]
    assert "format_penalty" not in info
    assert info["searches"] == 1
    chosen = ModelPlayer("retrieval_qa", TaskConfig(), ModelConfig(prompt="paper"), large)
    assert chosen.chat_about(pool.base, temperature=1.0).prompt.forced == "<think>"


class Answers(NamedTuple):
    """A player whose chat policy gives these answers and keeps what it was asked about."""

    answers: list[Candidate]
    asked: list[object]
    calls: str | None = None
    think: bool = True
    calls: str | None = None

    def chat_about(self, base, *, temperature):
        def chat(requests):
            self.asked.extend((tree.nodes[1].candidate.text, wish) for tree, wish in requests)
            return [self.answers]

        return chat


class World(NamedTuple):
    reads_tags: bool = False


PATH = [node(None, 0), node(0, 1, "Up")]


def test_equal_actions_are_one_proposal_in_every_form_of_answer():
    said = ["<think>a</think><answer>Left</answer>", "<think>b</think><answer>Left</answer>", "what?", "<answer>x"]
    player = Answers([Candidate(text, (), (1, 2), (-0.5 * k, -0.5)) for k, text in enumerate(said)], [])
    found = Proposer(player, World())(PATH, seed=1, samples=4)
    assert [(one.action, one.times) for one in found] == [("", 2), ("Left", 2)][::-1]
    # exp(0 - 0.5) of the first; exp(-1 - 0.5) of the third.
    assert [one.probability for one in found] == pytest.approx([0.60653, 0.22313], abs=1e-5)
    assert player.asked == [("<think></think><answer>Up</answer>", (1, 4))]
    player = Answers([Candidate("<answer>Left</answer>")], [], think=False)
    assert Proposer(player, World())(PATH, seed=1, samples=1) == [Proposal("Left", 1, 1.0)]
    assert player.asked[0][0] == "<answer>Up</answer>"
    player = Answers([Candidate("<search>a</search>")], [])
    assert Proposer(player, World(reads_tags=True))(PATH, seed=1, samples=1)[0].action == "<search>a</search>"
    assert player.asked[0][0] == "Up"


def test_a_model_plays_by_calls_of_tools_where_the_world_has_some(tmp_path):
    large = load_policy(save_chat_model(tmp_path), device=CPU)
    large.tokenizer.chat_template = HERMES
    player = ModelPlayer("tests/Box-v0", TaskConfig(), ModelConfig(prompt="tools", max_tokens=4), large)
    (env,) = player.pool(None).set([1])
    assert (env.get_wrapper_attr("family"), player.think) == ("hermes", False)
    ((candidate,),) = player.chat_about(env.unwrapped, temperature=1.0)([(env.tree, Expand(0))])
    assert '"name": "put"' in large.tokenizer.decode(candidate.prompt_ids)
    with pytest.raises(ConfigError, match="cannot propose turns"):
        Proposer(player, env.unwrapped)
    player = replace(player, env="sokoban")
    with pytest.raises(ConfigError, match="SokobanEnv has no tools that a model can call"):
        player.pool(None)
    large.tokenizer.chat_template = CHATML
    with pytest.raises(ConfigError, match=r"no form of tool calls that can be read.* --tool-calls"):
        _ = player.calls
    assert replace(player, model=ModelConfig(prompt="tools", tool_calls="llama")).calls == "llama"
