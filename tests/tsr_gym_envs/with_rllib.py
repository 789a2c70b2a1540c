"""RLlib trains on our environments, on the Gymnasium that it asks for; `make test-clients` runs it."""

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.tune.registry import register_env


def make_lake(config):
    import gymnasium as gym

    import tsr_gym  # noqa: F401 (registers the ids)

    return gym.make("tsr/FrozenLake-v0", obs_type="discrete", max_actions=12)


def test_ppo_of_rllib_trains():
    register_env("lake", make_lake)
    ray.init(address="local", num_cpus=1, include_dashboard=False, configure_logging=False)
    try:
        flat = FlattenObservations()
        config = PPOConfig().environment("lake")
        config = config.env_runners(num_env_runners=0, env_to_module_connector=lambda env, spaces, device: flat)
        config = config.training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        result = config.build_algo().train()
        assert result["env_runners"]["num_env_steps_sampled"] >= 64
    finally:
        ray.shutdown()
