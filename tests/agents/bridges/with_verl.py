"""Searched rollouts in verl 0.9.1; `make test-verl` runs it where verl is installed.

Real are the dataset, the worker of the V1 trainer, the TransferQueue with its processes of Ray, and the trainer's own
advantages. The servers that would need a GPU are a tiny model in this process, and no weights are updated.
"""

import asyncio

import numpy as np
import pytest
import torch

pytest.importorskip("verl", reason="needs verl: make test-verl")

from tests.agents.bridges.helpers import Sampling, check_logprobs
from tests.agents.tiny import save_chat_model
from tsr_gym import ConfigError
from tsr_gym.agents.bridges.verl import ADVANTAGES, ESTIMATORS, TRAINER, task_rows, tensor_estimator

SIZE, TASKS = 4, (3, 8)
LOOPS = """
- name: plain
  _target_: tsr_gym.agents.bridges.verl.tsr_agent_loop
  env: tests.agents.bridges.helpers:tests/Counting-v0
  strategy: beam(width=2, branching=2)
  model: {max_tokens: 5, prompt: plain}
- name: tree
  _target_: tsr_gym.agents.bridges.verl.tsr_agent_loop
  env: tests.agents.bridges.helpers:tests/Counting-v0
  strategy: beam(width=2, branching=3)
  estimator: tree_backup
  search: {learn_from: leaves}
  task: {env_set: [max_turns=2]}
  model: {max_tokens: 5, prompt: plain}
"""


class Client(Sampling):
    """verl's client of its servers, whose outputs have verl's type."""

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        from verl.workers.rollout.replica import TokenOutput

        output = await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling_params)
        return TokenOutput(**vars(output))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, the rows of a dataset and the file of the agent loops."""
    from datasets import Dataset

    place = tmp_path_factory.mktemp("verl")
    save_chat_model(place / "model")
    for agent in ("plain", "tree"):
        Dataset.from_list(task_rows(TASKS, agent=agent)).to_parquet(place / f"{agent}.parquet")
    (place / "loops.yaml").write_text(LOOPS)
    return place


def configured(folder, *overrides):
    """Return verl's configuration of its trainer, with a few settings."""
    from hydra import compose, initialize_config_module

    settings = [
        f"actor_rollout_ref.model.path={folder / 'model'}",
        f"actor_rollout_ref.rollout.n={SIZE}",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.rollout.temperature=0.8",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={folder / 'loops.yaml'}",
        *overrides,
    ]
    with initialize_config_module(config_module="verl.trainer.config", version_base=None):
        return compose(config_name="ppo_trainer", overrides=settings)


@pytest.fixture(scope="module")
def queue():
    """The TransferQueue, with its processes of Ray on this machine."""
    import ray
    import transfer_queue as tq

    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=80 * 2**20)
    tq.init()
    yield tq
    tq.close()
    ray.shutdown()


def rolled_out(folder, config, agent, partition="train"):
    """Return the client, and the keys of the rows that the worker put into the queue."""
    import transfer_queue as tq
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
    from verl.utils import tensordict_utils as tu
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    client = Client()
    worker_class = AgentLoopWorkerTQ.__ray_metadata__.modified_class

    async def played():
        worker = worker_class(config, client)
        data = RLHFDataset(str(folder / f"{agent}.parquet"), worker.tokenizer, config.data)
        rows = collate_fn([data[number] for number in range(len(TASKS))])
        rows["uid"] = np.array([f"{agent}{number}" for number in TASKS], dtype=object)
        batch = tu.get_tensordict(rows)
        tu.assign_non_tensor_data(batch, "global_steps", 5)
        await worker.generate_sequences(batch)
        await asyncio.gather(*worker.background_tasks)

    asyncio.run(played())
    items = tq.kv_list()[partition]
    status = {key: tag["status"] for key, tag in items.items() if key in {f"{agent}{number}" for number in TASKS}}
    assert status == {f"{agent}{number}": "finished" for number in TASKS}
    return client, sorted(key for key in items if key.startswith(agent) and "_" in key)


def advantages_of(config, keys, trainer):
    """Return the advantages that verl's trainer computes for the rows."""
    import transfer_queue as tq
    from transfer_queue import KVBatchMeta

    where = {"keys": keys, "partition_id": "train"}
    sampled = tq.kv_batch_get(**where, select_fields=["rollout_log_probs"])
    # With a GPU, the actor would compute these log-probabilities again.
    sampled["old_log_probs"] = sampled["rollout_log_probs"]
    tq.kv_batch_put(**where, fields=sampled.select("old_log_probs"))
    made = object.__new__(trainer)
    made.config = config
    made._compute_advantage(KVBatchMeta(**where, tags=[{} for _ in keys]), {})
    return list(tq.kv_batch_get(**where, select_fields=["advantages"])["advantages"].unbind())


@pytest.fixture(scope="module")
def plain(folder, queue):
    """Two prompts of four sessions by beam search, in the queue."""
    config = configured(folder, "algorithm.adv_estimator=tsr_grpo")
    client, keys = rolled_out(folder, config, "plain")
    names = ["prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores"]
    return config, client, keys, queue.kv_batch_get(keys=keys, partition_id="train", select_fields=names)


def test_verl_registers_the_trainer_and_the_estimators_by_its_plug_in_variable(monkeypatch):
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
    from verl.utils.import_utils import import_external_libs

    import_external_libs(["tsr_gym.agents.bridges.verl_plugin"])
    assert issubclass(get_trainer_cls(TRAINER), PPOTrainerSync)
    for name in ESTIMATORS:
        assert callable(core_algos.get_adv_estimator_fn(name))


def test_each_session_puts_a_row_of_exactly_the_sampled_tokens_into_the_queue(plain):
    _, client, keys, data = plain
    assert keys == [f"plain{number}_{session}_0" for number in TASKS for session in range(SIZE)]
    for number in range(len(keys)):
        names = ("prompts", "responses", "response_mask", "rollout_log_probs")
        check_logprobs(client.model, *(data[name][number].tolist() for name in names))
        assert not data["response_mask"][number].all()
        # Three turns, each with a reward on its last token.
        assert int((data["rm_scores"][number] != 0).sum()) <= 3
    # Only the rows of the same group have equal prompts.
    assert len({tuple(data["prompts"][number].tolist()) for number in range(SIZE)}) == 1
    assert data["prompts"][0].tolist() != data["prompts"][SIZE].tolist()


def test_verls_trainer_calls_an_estimator_by_its_name(plain):
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    config, _, keys, data = plain
    advantages = advantages_of(config, keys, PPOTrainerSync)
    config.algorithm.adv_estimator = "grpo"
    # verl's own estimator of the same name gives the same advantages.
    theirs = advantages_of(config, keys, PPOTrainerSync)
    totals = torch.stack([rewards.sum() for rewards in data["rm_scores"].unbind()]).reshape(-1, SIZE)
    wanted = ((totals - totals.mean(dim=1, keepdim=True)) / (totals.std(dim=1, keepdim=True) + 1e-6)).flatten()
    for number, mask in enumerate(data["response_mask"].unbind()):
        assert torch.allclose(advantages[number], wanted[number] * mask, atol=1e-4)
        assert torch.allclose(advantages[number], theirs[number], atol=1e-4)
    assert wanted.abs().max() > 0.1


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_estimators_are_called_by_verls_own_code_on_a_batch(plain, name):
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    _, _, keys, data = plain
    padded = {part: data[part].to_padded_tensor(0) for part in ("rm_scores", "response_mask")}
    uids = np.array([key.split("_")[0] for key in keys], dtype=object)
    batch = DataProto.from_dict(
        {"token_level_rewards": padded["rm_scores"], "response_mask": padded["response_mask"]}, {"uid": uids}
    )
    advantages = compute_advantage(batch, adv_estimator=name).batch["advantages"]
    wanted, _ = tensor_estimator(ESTIMATORS[name])(padded["rm_scores"], padded["response_mask"], uids)
    assert torch.equal(advantages, wanted)
    assert advantages.abs().max() > 0.01


def test_the_trainer_learns_from_the_advantages_of_the_tree(folder, queue):
    from verl.trainer.ppo.v1 import get_trainer_cls

    config = configured(folder, f"trainer.v1.trainer_mode={TRAINER}", "algorithm.adv_estimator=grpo")
    _, keys = rolled_out(folder, config, "tree")
    # With more leaves than sessions, some sessions have several rows.
    assert len(keys) > len(TASKS) * SIZE
    names = [ADVANTAGES, "response_mask", "rm_scores"]
    given = queue.kv_batch_get(keys=keys, partition_id="train", select_fields=names)
    advantages = advantages_of(config, keys, get_trainer_cls(TRAINER))
    for number, mask in enumerate(given["response_mask"].unbind()):
        assert torch.equal(advantages[number], given[ADVANTAGES][number])
        assert not advantages[number][mask == 0].any()
    assert max(float(own.abs().max()) for own in advantages) > 0.1
    # Every row has its own return; verl alone would give all rows of a session the return of the last row.
    totals = {key: float(given["rm_scores"][number].sum()) for number, key in enumerate(keys)}
    session = [total for key, total in totals.items() if key.startswith("tree3_0_")]
    assert len(session) > 1
    assert len({round(total, 4) for total in totals.values()}) > 2


def test_a_trainer_that_would_not_read_the_advantages_is_refused(folder):
    from verl.trainer.ppo.v1 import get_trainer_cls

    made = object.__new__(get_trainer_cls(TRAINER))
    with pytest.raises(ConfigError, match=f"wanted trainer.v1.trainer_mode={TRAINER}"):
        made.trainer_mode = "sync"
    made.trainer_mode = TRAINER
    assert made.trainer_mode == "sync"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"actor_rollout_ref.rollout.name": "sglang"}, "wanted rollout.name=vllm"),
        ({"actor_rollout_ref.rollout.top_p": 0.9}, "wanted top_p=1"),
        ({}, "wanted trainer.v1.trainer_mode=tsr_sync"),
    ],
)
def test_impossible_settings_fail_their_prompts_with_advice(folder, queue, caplog, changed, message):
    config = configured(folder, *(f"{name}={value}" for name, value in changed.items()))
    with pytest.raises(AssertionError, match="failure"):
        rolled_out(folder, config, "tree")
    assert message in caplog.text
