"""verl's bridge without verl: one search for the sessions of a prompt, exact rows, estimators on verl's tensors."""

import asyncio
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from tests.agents.bridges.helpers import Sampling, check_logprobs
from tsr_gym import ConfigError, EngineFailed, Unsupported
from tsr_gym.agents.bridges.verl import task_rows, tensor_estimator
from tsr_gym.agents.bridges.verl_search import LoopSettings, Searches, ServedByVerl, output_fields
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.learning.advantages import grpo, mt_grpo, reinforce_pp, tspo
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.settings import ModelCard, ModelConfig

WORLD, SIZE = "tests/Counting-v0", 4
MODEL = ModelConfig(max_tokens=5, prompt="plain")


def settings(search="beam(width=2, branching=2)", estimator=None, **more):
    return LoopSettings(WORLD, SearchConfig(search=search, **more), estimator, TaskConfig(), MODEL, 0)


def sessions(searches, client, *, number=7, step=2, evaluation=False, size=SIZE, uid="a"):
    """Return the harvest of a prompt's search, which all of its concurrent sessions receive."""
    policy = LanguageModel(SimpleNamespace(generation_config=GenerationConfig()), client.tokenizer, ModelCard())
    row = {"global_steps": step, "extra_info": {"index": number, "evaluation": evaluation}}

    async def all_of_them():
        events = asyncio.get_running_loop()
        hosts = [ServedByVerl(client, uid, events, 2048, len(client.tokenizer)) for _ in range(size)]
        return await asyncio.gather(*(searches.of(host, policy, size, 0.8, row) for host in hosts))

    harvests = asyncio.run(all_of_them())
    assert all(harvest is harvests[0] for harvest in harvests)
    return harvests[0]


def test_the_sessions_of_a_prompt_share_one_search_and_each_takes_a_trajectory():
    client, searches = Sampling(), Searches(settings())
    harvest = sessions(searches, client)
    parts = [searches.part(harvest, session, SIZE, evaluation=False) for session in range(SIZE)]
    assert [len(part) for part in parts] == [1] * SIZE
    # All requests have the same id, so that one server has the whole tree in its prefix cache.
    assert len({part[0].row.task for part in parts}) == 1
    assert {request for request, *_ in client.asked} == {"a"}
    assert harvest.versions == (3, 4)
    # Four searches of three turns: four first answers each, then two at each of two nodes twice.
    assert len(client.asked) > 3 * SIZE
    assert sessions(searches, client, number=8).trajectories[0][0].row.task != parts[0][0].row.task


def test_rows_hold_the_servers_tokens_and_log_probabilities():
    client, searches = Sampling(), Searches(settings("naive"))
    harvest = sessions(searches, client)
    limits = [settings["max_tokens"] for _, _, settings in client.asked]
    assert set(limits) == {5}
    assert all(request["logprobs"] is True and request["temperature"] == 0.8 for *_, request in client.asked)
    for (trained,) in harvest.trajectories:
        fields = output_fields(trained, 1000, {})
        parts = (fields[name] for name in ("prompt_ids", "response_ids", "response_mask", "response_logprobs"))
        check_logprobs(client.model, *parts)


def test_rewards_stand_at_the_ends_of_turns_and_sum_to_the_return():
    harvest = sessions(Searches(settings("naive")), Sampling())
    for (trained,) in harvest.trajectories:
        row, fields = trained.row, output_fields(trained, 1000, {"min_global_steps": 3})
        start = row.starts[0]
        wanted = dict(zip((end - 1 - start for end in row.ends), row.rewards, strict=True))
        assert fields["token_rewards"] == pytest.approx([wanted.get(at, 0.0) for at in range(len(row.labels) - start)])
        assert sum(fields["token_rewards"]) == pytest.approx(fields["reward_score"])
        assert fields["num_turns"] == 2 * len(row.starts)
        assert fields["extra_fields"]["min_global_steps"] == 3
        # The rewards of cut tokens stand on the last remaining token.
        cut = output_fields(trained, 4, {})
        assert len(cut["response_ids"]) == len(cut["response_mask"]) == len(cut["token_rewards"]) == 4
        assert sum(cut["token_rewards"]) == pytest.approx(row.total_reward)


def test_with_an_estimator_all_trajectories_come_with_advantages_of_the_whole_tree():
    searches = Searches(settings("beam(width=2, branching=3)", "tree_backup", learn_from="leaves"))
    harvest = sessions(searches, Sampling(), size=2)
    parts = [searches.part(harvest, session, 2, evaluation=False) for session in range(2)]
    assert sum(map(len, parts)) == len(harvest.trajectories) > 2
    given = [output_fields(row, 1000, {}) for part in parts for row in part]
    assert any(any(fields["token_advantages"]) for fields in given)
    for fields in given:
        own = zip(fields["token_advantages"], fields["response_mask"], strict=True)
        assert all(sampled or not advantage for advantage, sampled in own)


def test_evaluation_plays_without_search_and_without_advantages():
    client, searches = Sampling(), Searches(settings("beam(width=2, branching=3)", "tree_backup"))
    harvest = sessions(searches, client, evaluation=True)
    assert len(harvest.trajectories) == SIZE
    # Each episode has three requests.
    assert len(client.asked) == 3 * SIZE
    (row,) = searches.part(harvest, 2, SIZE, evaluation=True)
    assert "token_advantages" not in output_fields(row, 1000, {})


def test_a_failure_reaches_every_session_and_the_next_prompt_is_searched():
    searches = Searches(settings("naive"))
    with pytest.raises(EngineFailed, match="an answer was aborted"):
        sessions(searches, Sampling(reason="aborted"))
    with pytest.raises(EngineFailed, match="gave 0 log-probabilities"):
        sessions(searches, Sampling(silent=True))
    assert len(sessions(searches, Sampling()).trajectories) == SIZE
    host = ServedByVerl(None, "a", None, 8, 8)
    with pytest.raises(Unsupported, match="wanted no load_weights"):
        host.load_weights(())
    with pytest.raises(Unsupported, match="wanted no abort"):
        host.abort()


def test_several_rows_of_an_episode_need_the_trainer_with_advantages():
    markov = LoopSettings(WORLD, SearchConfig(), None, TaskConfig(), ModelConfig(max_tokens=5, history="markov"), 0)
    searches = Searches(markov)
    harvest = sessions(searches, Sampling())
    assert {len(rows) for rows in harvest.trajectories} == {3}
    with pytest.raises(ConfigError, match="wanted history=full"):
        searches.part(harvest, 0, SIZE, evaluation=False)
    for rows in harvest.trajectories:
        returns = [sum(output_fields(row, 1000, {})["token_rewards"]) for row in rows]
        assert returns == pytest.approx([rows[0].row.total_reward] * 3)


@pytest.fixture(scope="module")
def groups():
    """Two groups of four trajectories, and their rows."""
    searches, client = Searches(settings("naive")), Sampling()
    return [sessions(searches, client, number=number).trajectories for number in (3, 9)]


def tensors(groups):
    """Return rewards, mask and groups of rows as verl passes them to an estimator, with the groups mixed."""
    pairs = [(number, row) for number, trajectories in enumerate(groups) for (row,) in trajectories]
    rows = [(number, output_fields(row, 1000, {})) for number, row in pairs]
    rows = rows[::2] + rows[1::2]
    length = max(len(fields["response_ids"]) for _, fields in rows)

    def padded(name):
        return torch.tensor([fields[name] + [0] * (length - len(fields[name])) for _, fields in rows])

    uids = np.array([f"prompt {number}" for number, _ in rows], dtype=object)
    return padded("token_rewards").float(), padded("response_mask"), uids


def test_grpo_on_verls_tensors_is_the_return_less_its_groups_mean_by_its_deviation(groups):
    rewards, mask, uids = tensors(groups)
    advantages, returns = tensor_estimator("grpo")(rewards, mask, uids)
    totals = rewards.sum(dim=1)
    for number, uid in enumerate(uids):
        alike = totals[torch.tensor([other == uid for other in uids])]
        wanted = (totals[number] - alike.mean()) / (alike.std() + 1e-6)
        assert torch.allclose(advantages[number], wanted * mask[number], atol=1e-4)
    assert torch.equal(advantages, returns)


def test_rows_without_trained_tokens_have_no_advantages_and_change_none(groups):
    rewards, mask, uids = tensors(groups)
    estimator = tensor_estimator("rloo")
    advantages, _ = estimator(rewards, mask, uids)
    more = [torch.cat([tensor, torch.zeros_like(tensor[:1])]) for tensor in (rewards, mask)]
    again, _ = estimator(*more, np.append(uids, uids[0]))
    assert torch.equal(again[:-1], advantages)
    assert not again[-1].any()
    assert not estimator(rewards, torch.zeros_like(mask), uids)[0].any()


TSPO = "tspo(groups='all')"


@pytest.mark.parametrize(
    ("text", "estimator"),
    [*((each.__name__, each) for each in (grpo, mt_grpo, reinforce_pp)), (TSPO, partial(tspo, groups="all"))],
)
def test_advantages_on_verls_tensors_are_those_of_the_rows_here(text, estimator):
    client = Sampling()
    searches = Searches(settings("naive", f"{__name__}:kept"))
    kept_groups.clear()
    harvest = sessions(searches, client)
    rewards, mask, uids = tensors([harvest.trajectories])
    given, _ = tensor_estimator(text)(rewards, mask, uids)
    order = [*range(0, SIZE, 2), *range(1, SIZE, 2)]
    wanted = estimator(kept_groups[0])
    starts = [rows[0].row.starts[0] for rows in harvest.trajectories]
    for place, number in enumerate(order):
        own = wanted[number, starts[number] :]
        assert torch.allclose(given[place, : len(own)], own[: given.shape[1]], atol=1e-5)


kept_groups = []


def kept(batch):
    """Keep the batch of a search, and return no advantages."""
    kept_groups.append(batch)
    return torch.zeros_like(batch.old_logprobs)


def test_rows_of_a_dataset_name_instance_and_agent():
    (row,) = task_rows([5], agent="lake", evaluation=True)
    assert row["agent_name"] == "lake"
    assert row["extra_info"] == {"index": 5, "evaluation": True}
    assert row["prompt"] == [{"role": "user", "content": "instance 5"}]
    with pytest.raises(ConfigError, match="needs a critic"):
        tensor_estimator("gae")
