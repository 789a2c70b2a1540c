"""Catalogues of invented products, in natural language and in the format of the original's files."""

from tsr_gym_envs.webshop.generator.products import Record, generate, write_catalogue

__all__ = ["Record", "generate", "write_catalogue"]
