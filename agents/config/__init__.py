"""Configuration: names and numbers become checked, bound values here, once; torch-free.

`TrainConfig` holds every setting of a run in sections. `resolve` makes one from an environment, a recipe, a model's
card and the settings that the user gave. The command line, a TOML file and Python all end there.
"""

from tsr_gym.agents.config.resolve import Setting, collect_settings
from tsr_gym.agents.config.sections import RunConfig
from tsr_gym.agents.config.train_config import RUN_FILE, TrainConfig, build_config, resolve

__all__ = ["RUN_FILE", "RunConfig", "Setting", "TrainConfig", "build_config", "collect_settings", "resolve"]
