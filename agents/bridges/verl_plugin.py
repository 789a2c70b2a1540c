"""The module that verl imports to use this package: ``VERL_USE_EXTERNAL_MODULES=tsr_gym.agents.bridges.verl_plugin``.

Importing it registers the trainer and the estimators of `tsr_gym.agents.bridges.verl`.
"""

from tsr_gym.agents.bridges.verl import register_with_verl

register_with_verl()
