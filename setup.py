"""Map the top-level folders agents and wrappers to the packages tsr_gym.agents and tsr_gym.wrappers."""

from setuptools import find_packages, setup

FOLDERS = {"tsr_gym.agents": "agents", "tsr_gym.wrappers": "wrappers"}
packages = find_packages(include=["tsr_gym*", "tsr_gym_envs*"])
for name, folder in FOLDERS.items():
    packages += [name, *(f"{name}.{package}" for package in find_packages(folder))]
setup(packages=packages, package_dir=FOLDERS)
