"""An invented world: passages and questions with one to four hops, generated from a seed."""

from tsr_gym_envs.retrieval_qa.world.settings import WorldSettings
from tsr_gym_envs.retrieval_qa.world.world import World, default_world, generate_world, write_world

__all__ = ["World", "WorldSettings", "default_world", "generate_world", "write_world"]
