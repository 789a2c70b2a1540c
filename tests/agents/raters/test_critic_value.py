"""CriticValue: values read off the critic state by state, and paths worth their return and what is still expected."""

from functools import partial

import pytest
import torch
from safetensors.torch import save_file

from tests.agents.scripted_engine import ScriptedEngine
from tests.agents.tiny import random_qwen2, save_chat_model
from tests.agents.worlds import lake, picture, rooms
from tsr_gym import Candidate, CheckpointError, PromptTooLong
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.models.critic import Critic
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.policies.prompts import History, compact_prompt
from tsr_gym.agents.raters import CriticValue, OwnScore, WeightedRater, make_rater
from tsr_gym.agents.strategies import beam
from tsr_gym.files import write_folder

TURNS = ("Up", "Left || Down", "Right", "junk", "Down || Down")


def with_random_head(backbone):
    critic = Critic(backbone)
    torch.manual_seed(1)
    torch.nn.init.normal_(critic.head.weight)
    torch.nn.init.normal_(critic.head.bias)
    return critic


@pytest.fixture(scope="module")
def critic(tokenizer):
    return with_random_head(random_qwen2(tokenizer, context=512).model)


@pytest.fixture(scope="module")
def chat(tokenizer):
    """A policy that says one of five turns, as its seed decides."""

    def answer(prompt, seed):
        return tokenizer(TURNS[seed % len(TURNS)] + "</answer>")["input_ids"] + [tokenizer.eos_token_id]

    return ChatPolicy(ScriptedEngine(answer), tokenizer, compact_prompt(), History(None))


def room(seed, **settings):
    env = rooms(seed, **settings)
    env.env.think = False
    return env


def worth(critic, chat, tree, node):
    """Return a state's value by a forward pass of its prompt alone: an oracle without batches and without padding."""
    if tree.nodes[node].done:
        return 0.0
    ids = torch.tensor([chat.prompt_ids(tree, node)])
    hidden = critic.backbone(input_ids=ids, use_cache=False).last_hidden_state[0, -1]
    return (hidden @ critic.head.weight[0] + critic.head.bias[0]).item()


def searched(envs, chat, rater, seeds):
    return search(envs, chat, partial(beam, width=2, branching=3), seeds=seeds, rater=rater)


def test_where_scores_rate_turns_a_path_is_worth_its_return_and_the_gain_in_value(critic, chat):
    (tree,) = searched([room(3)], chat, CriticValue(critic, chat), [3])
    start = worth(critic, chat, tree, 0)
    assert tree.score_of == "turn"
    for index in range(1, len(tree.nodes)):
        wanted = tree.total(index, "reward") + worth(critic, chat, tree, index) - start
        assert tree.merit(index) == pytest.approx(wanted, abs=1e-3)
    assert {node.done for node in tree.nodes} == {True, False}


def test_where_scores_rate_states_a_node_is_worth_its_return_and_its_value(critic, chat):
    env = lake(5)
    env.get_wrapper_attr("env").env.think = False
    (tree,) = searched([env], chat, CriticValue(critic, chat), [5])
    assert tree.score_of == "state"
    for index in range(1, len(tree.nodes)):
        wanted = tree.total(index, "reward") + worth(critic, chat, tree, index)
        assert tree.nodes[index].score == pytest.approx(wanted, abs=1e-3)


def test_without_rewards_only_the_values_count(critic, chat):
    (tree,) = searched([room(3)], chat, CriticValue(critic, chat, reward=False), [3])
    start = worth(critic, chat, tree, 0)
    for index in range(1, len(tree.nodes)):
        assert tree.merit(index) == pytest.approx(worth(critic, chat, tree, index) - start, abs=1e-3)


def test_an_episode_that_is_over_has_nothing_to_expect(critic, chat):
    env = room(3, max_turns=1)
    tree = env.tree
    nodes = [(tree, node) for node in env.expand(0, [Candidate("<answer>Up</answer>")])]
    assert CriticValue(critic, chat).values(nodes) == {(id(tree), 1): 0.0}
    wanted = tree.nodes[1].reward - worth(critic, chat, tree, 0)
    assert CriticValue(critic, chat)(nodes) == [pytest.approx(wanted, abs=1e-4)]


def test_a_round_of_all_searches_is_one_forward_pass(critic, chat, monkeypatch):
    rows = []
    forward = Critic.forward

    def counted(self, ids, present):
        rows.append(len(ids))
        return forward(self, ids, present)

    monkeypatch.setattr(Critic, "forward", counted)
    seeds = [1, 2, 3]
    trees = searched([room(seed, max_turns=3) for seed in seeds], chat, CriticValue(critic, chat), seeds)
    assert len(rows) == max(node.depth for tree in trees for node in tree.nodes)
    # At most three candidates for each tree and the state that they grew from; what says the same is asked once.
    firsts = [{tree.nodes[node].candidate.text for node in tree.children(0)} for tree in trees]
    assert rows[0] == 3 + sum(map(len, firsts))


SEEDS = (4, 5, 6, 7)


@pytest.mark.parametrize("max_batch", [256, 5, 1])
def test_what_else_is_rated_changes_no_choice_and_no_more_than_the_last_digits(critic, chat, max_batch):
    rater = CriticValue(critic, chat, max_batch=max_batch)
    together = searched([room(seed) for seed in SEEDS], chat, rater, SEEDS)
    alone = [searched([room(seed)], chat, CriticValue(critic, chat), [seed])[0] for seed in SEEDS]
    for one, other in zip(together, alone, strict=True):
        assert one.chosen == other.chosen
        assert [node.candidate for node in one.nodes] == [node.candidate for node in other.nodes]
        assert [node.score for node in one.nodes] == pytest.approx([node.score for node in other.nodes], abs=2.1e-4)


def test_by_tree_not_even_a_bit_depends_on_what_else_is_rated(critic, chat):
    rater = CriticValue(critic, chat, by_tree=True, digits=12)
    together = searched([room(seed) for seed in SEEDS], chat, rater, SEEDS)
    alone = [searched([room(seed)], chat, rater, [seed])[0] for seed in SEEDS]
    assert [picture(tree) for tree in together] == [picture(tree) for tree in alone]


def test_states_that_read_alike_are_worth_the_same(critic, chat):
    env = room(3)
    nodes = [(env.tree, node) for node in env.expand(0, [Candidate("<answer>Up</answer>")] * 3)]
    assert len(set(CriticValue(critic, chat, digits=12)(nodes))) == 1


def test_it_can_be_part_of_a_sum(critic, chat):
    env = room(3)
    nodes = [(env.tree, node) for node in env.expand(0, [Candidate("<answer>Up</answer>"), Candidate("junk")])]
    value = CriticValue(critic, chat, reward=False)
    summed = WeightedRater({"own": (OwnScore(), 1.0), "value": (value, 0.5)})
    own = [tree.nodes[node].score for tree, node in nodes]
    assert summed(nodes) == [score + 0.5 * gain for score, gain in zip(own, value(nodes), strict=True)]


def test_a_state_that_the_critic_cannot_read_is_named(tokenizer, chat):
    short = with_random_head(random_qwen2(tokenizer, context=16).model)
    env = room(3)
    nodes = [(env.tree, node) for node in env.expand(0, [Candidate("<answer>Up</answer>")])]
    with pytest.raises(PromptTooLong, match="at most 15 tokens"):
        CriticValue(short, chat)(nodes)


def test_a_checkpoints_critic_is_read_by_name(tmp_path, critic, chat, tokenizer):
    def write(folder):
        save_chat_model(folder / "model", context=512)
        save_file(trained.state_dict(), folder / "critic.safetensors")

    trained = with_random_head(random_qwen2(tokenizer, context=512, seed=3).model)
    write_folder(tmp_path / "000010", write)
    env = room(3)
    nodes = [(env.tree, node) for node in env.expand(0, [Candidate("<answer>Up</answer>")])]
    rater = make_rater(f"CriticValue(critic={str(tmp_path / '000010')!r}, device='cpu')", chat=chat)
    assert rater(nodes) == CriticValue(trained, chat)(nodes)
    assert rater(nodes) != CriticValue(critic, chat)(nodes)


def test_a_head_that_was_saved_alone_is_read_off_the_checkpoints_policy(tmp_path, chat, tokenizer):
    def write(folder):
        random_qwen2(tokenizer, context=512, seed=3).save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        save_file(head, folder / "critic.safetensors")

    trained = with_random_head(random_qwen2(tokenizer, context=512, seed=3).model)
    head = {name: value for name, value in trained.state_dict().items() if name.startswith("head.")}
    write_folder(tmp_path / "000010", write)
    env = room(3)
    nodes = [(env.tree, node) for node in env.expand(0, [Candidate("<answer>Up</answer>")])]
    found = CriticValue(tmp_path / "000010", chat, device="cpu")(nodes)
    assert found == CriticValue(trained, chat)(nodes)
    del head["head.bias"]
    write_folder(tmp_path / "000011", write)
    with pytest.raises(CheckpointError, match=r"not a checkpoint with a critic"):
        CriticValue(tmp_path / "000011", chat, device="cpu")


def test_a_checkpoint_without_a_critic_is_refused(tmp_path, chat):
    write_folder(tmp_path / "000010", lambda folder: save_chat_model(folder / "model"))
    with pytest.raises(CheckpointError, match="train with PPO"):
        CriticValue(tmp_path / "000010", chat, device="cpu")
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        CriticValue(tmp_path / "none", chat, device="cpu")
