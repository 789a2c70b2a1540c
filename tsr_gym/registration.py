"""Ids of the environments, registered by strings so that importing tsr_gym stays cheap."""

import gymnasium as gym

ENTRY_POINTS = {
    "tsr/FrozenLake-v0": "tsr_gym_envs.frozen_lake.env:make",
    "tsr/RetrievalQA-v0": "tsr_gym_envs.retrieval_qa.env:make",
    "tsr/Sokoban-v0": "tsr_gym_envs.sokoban.env:make",
    "tsr/WebShop-v0": "tsr_gym_envs.webshop.env:make",
}
VECTOR_ENTRY_POINTS = {
    "tsr/FrozenLake-v0": "tsr_gym_envs.frozen_lake.vector_env:make_vec",
    "tsr/Sokoban-v0": "tsr_gym_envs.sokoban.vector_env:make_vec",
}
SHORT_NAMES = {
    "frozen_lake": "tsr/FrozenLake-v0",
    "frozenlake": "tsr/FrozenLake-v0",
    "retrieval_qa": "tsr/RetrievalQA-v0",
    "sokoban": "tsr/Sokoban-v0",
    "webshop": "tsr/WebShop-v0",
}


def register_envs() -> None:
    """Register every tsr/ id with Gymnasium; safe to call twice."""
    for env_id, entry_point in ENTRY_POINTS.items():
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=entry_point, vector_entry_point=VECTOR_ENTRY_POINTS.get(env_id))


def env_id(name: str) -> str:
    """Return the Gymnasium id that a short name such as ``"sokoban"`` stands for; other names as they are."""
    return SHORT_NAMES.get(name.lower(), name)
