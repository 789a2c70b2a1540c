"""TRL's rollout function and tool without TRL: a row per prompt with exactly the sampled tokens."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from tests.agents.bridges.helpers import check_logprobs
from tests.agents.tiny import chatml_tokenizer, random_qwen2
from tsr_gym import ConfigError, Expand
from tsr_gym.agents.bridges.audit import audit
from tsr_gym.agents.bridges.trl import ADVANTAGES, env_reward, task_prompts, tsr_environment, tsr_rollout_func
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.models.settings import ModelCard, ModelConfig
from tsr_gym.agents.policies.trie_engine import TrieEngine

MODEL = ModelConfig(max_tokens=5, prompt="plain")
TASK = TaskConfig(env_set=("max_turns=3",))
ROLLOUT = partial(tsr_rollout_func, "frozenlake", task=TASK, model=MODEL, card=ModelCard())


def trainer(size=4, *, step=0, training=True, temperature=0.8, process=0, use_vllm=False):
    """Return an object with the attributes of a trainer that the function reads."""
    tokenizer = chatml_tokenizer()
    parts = {"model": random_qwen2(tokenizer).train(training), "processing_class": tokenizer, "use_vllm": use_vllm}
    parts |= {"state": SimpleNamespace(global_step=step), "accelerator": SimpleNamespace(process_index=process)}
    return SimpleNamespace(**parts, num_generations=size, num_generations_eval=size, temperature=temperature)


def repeated(*numbers, size=4):
    return [row["prompt"] for number in numbers for row in task_prompts([number]) for _ in range(size)]


@pytest.fixture(scope="module")
def searched():
    """The rows of two groups of four by beam search."""
    host = trainer()
    return host, ROLLOUT("beam(width=2, branching=3)")(repeated(3, 8), host)


def test_there_is_a_row_for_every_prompt_and_groups_play_one_instance(searched):
    _, rows = searched
    assert {name: len(column) for name, column in rows.items()} == dict.fromkeys(rows, 8)
    assert set(rows) == {"prompt_ids", "completion_ids", "logprobs", "env_mask", "env_reward", "success"}
    first, second = rows["prompt_ids"][:4], rows["prompt_ids"][4:]
    # Rows of a group begin with the first observation of its instance.
    assert all(prompt == first[0] for prompt in first)
    assert all(prompt == second[0] for prompt in second)
    assert first[0] != second[0]


def test_masks_and_log_probabilities_are_those_of_the_sampled_tokens(searched):
    host, rows = searched
    names = ("prompt_ids", "completion_ids", "env_mask", "logprobs")
    records = [{name: rows[name][number] for name in names} for number in range(8)]
    for record in records:
        check_logprobs(host.model, *record.values())
    assert not any(check.findings for check in audit(records, tokenizer=host.processing_class))


def test_another_step_process_or_place_samples_anew_and_the_same_repeats(searched):
    host, rows = searched
    rollout = ROLLOUT("beam(width=2, branching=3)")
    assert rollout(repeated(3, 8), host)["completion_ids"] == rows["completion_ids"]
    for other in (trainer(step=1), trainer(process=1)):
        again = ROLLOUT("beam(width=2, branching=3)")(repeated(3, 8), other)
        assert again["prompt_ids"] == rows["prompt_ids"]
        assert again["completion_ids"] != rows["completion_ids"]
    twice = rollout(repeated(3, 3), host)["completion_ids"]
    assert twice[:4] != twice[4:]


def columns(batch):
    """Return as the advantage of each sampled token its place in its row plus a tenth of its group's number."""
    return (torch.arange(batch.ids.shape[1]) + 0.1 * batch.group[:, None]) * batch.sampled


def test_advantages_stand_at_their_tokens():
    rows = ROLLOUT("naive", estimator=f"{__name__}:columns")(repeated(3, 8), trainer())
    for number in range(8):
        start, mask = len(rows["prompt_ids"][number]), rows["env_mask"][number]
        wanted = [own * (start + at + 0.1 * (number // 4)) for at, own in enumerate(mask)]
        assert rows[ADVANTAGES][number] == pytest.approx(wanted, abs=1e-4)


LEAVES = {"search": SearchConfig(learn_from="leaves"), "estimator": "tree_backup"}


def test_of_a_tree_with_more_leaves_than_a_group_some_are_taken():
    rows = ROLLOUT("beam(width=2, branching=3)", **LEAVES)(repeated(3, size=2), trainer(2))
    assert {len(column) for column in rows.values()} == {2}
    assert None not in rows["env_reward"]
    assert all(any(mask) for mask in rows["env_mask"])


def two_paths(tree):
    """Grow two episodes, whichever number of trajectories is requested."""
    yield [Expand(tree.root, 2)]
    while open_nodes := [node for node in tree.open_leaves() if node != tree.root]:
        yield [Expand(node, 1) for node in open_nodes]


def test_a_tree_with_fewer_leaves_than_a_group_is_filled_with_rows_that_train_nothing():
    search = SearchConfig(learn_from="leaves", paths_per_search=5)
    rollout = ROLLOUT(f"{__name__}:two_paths", search=search, estimator=f"{__name__}:columns")
    rows = rollout(repeated(3, size=5), trainer(5))
    assert {len(column) for column in rows.values()} == {5}
    assert [reward is None for reward in rows["env_reward"]] == [False, False, True, True, True]
    assert [any(mask) for mask in rows["env_mask"]] == [True, True, False, False, False]
    assert [any(own) for own in rows[ADVANTAGES]] == [True, True, False, False, False]


def test_evaluation_plays_without_search_and_the_model_keeps_its_mode(monkeypatch):
    host = trainer(training=False)
    calls = []
    generate = TrieEngine.generate

    def counted(engine, prompts, *, seeds, **others):
        calls.append(sum(map(len, seeds)))
        return generate(engine, prompts, seeds=seeds, **others)

    monkeypatch.setattr(TrieEngine, "generate", counted)
    rollout = ROLLOUT("beam(width=2, branching=3)")
    rollout(repeated(3), host)
    # Four episodes of plain play take four samples a turn, and a beam would take three at each of two paths.
    assert max(calls) <= 4
    assert not host.model.training
    training = trainer()
    rollout(repeated(3), training)
    assert training.model.training


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (["instance 1"] * 3, "wanted whole groups of 4 equal prompts, got 3 of 'instance 1'"),
        (["hello"] * 4, "wanted a prompt that names an instance"),
    ],
)
def test_prompts_that_make_no_groups_are_refused(prompts, message):
    with pytest.raises(ConfigError, match=message):
        ROLLOUT()(prompts, trainer())


def test_impossible_settings_are_refused_with_advice():
    with pytest.raises(ConfigError, match="wanted use_vllm=False"):
        ROLLOUT()(repeated(1), trainer(use_vllm=True))
    with pytest.raises(ConfigError, match="wanted naive=0, got 2"):
        ROLLOUT(search=SearchConfig(naive=2))
    with pytest.raises(ConfigError, match="needs a critic"):
        ROLLOUT(estimator="gae")
    markov = partial(tsr_rollout_func, "frozenlake", task=TASK, card=ModelCard(history="markov"), model=MODEL)
    with pytest.raises(ConfigError, match="wanted history=full"):
        markov()(repeated(1), trainer())


def test_prompts_may_be_messages_and_rewards_are_the_environments(searched):
    host, rows = searched
    prompts = [[{"role": "user", "content": text}] for text in repeated(3, 8)]
    assert ROLLOUT("beam(width=2, branching=3)")(prompts, host)["completion_ids"] == rows["completion_ids"]
    assert env_reward(["a", "b"], env_reward=[1.5, None], success=[True, False]) == [1.5, None]


def test_an_environment_with_a_tool_plays_an_episode_to_its_end():
    make = tsr_environment("frozenlake", map_name="4x4", is_slippery=False, max_turns=10, max_actions=10)
    env = make()
    assert env.act("Right") == "The episode is over."
    assert "frozen lake" in env.reset(task=3, prompt="unused").lower()
    # Gymnasium's map: down twice, right twice, down and right again.
    texts = [env.act(action) for action in ("Down", "Down", "Right", "Right", "Down", "Right")]
    assert texts[-1].endswith("The episode is over.")
    assert not any(text.endswith("over.") for text in texts[:-1])
    reward = env.get_reward()
    assert reward > 0
    assert env.act("Up") == "The episode is over."
    assert env.get_reward() == reward
    env.reset(task=3)
    assert env.get_reward() == 0.0
    with pytest.raises(ConfigError, match="wanted an environment of text"):
        tsr_environment("CartPole-v1")
