"""`tsr serve`: an environment as a server of tools."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import progress_bar
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import parse_settings


@dataclass(frozen=True, slots=True)
class ServeArgs:
    """Serve an environment: its tools, reset, observe, snapshot and restore, for clients of MCP."""

    env: Annotated[str, tyro.conf.Positional]
    """Gymnasium id, package.module:Id of your own, or a short name such as sokoban."""
    mcp: bool = False
    """Speak the Model Context Protocol over standard input and output."""
    env_set: tuple[str, ...] = ()
    """Settings of the environment as KEY=VALUE, the value in JSON."""


def main(args: list[str]) -> int:
    """Serve until the client closes its end."""
    options = read_arguments(ServeArgs, args, prog="tsr serve")
    if not options.mcp:
        raise ConfigError("wanted --mcp, the only protocol so far")
    from tsr_gym.agents.bridges.mcp import mcp_server, serve_mcp

    with progress_bar(f"loading {options.env}"):
        server = mcp_server(options.env, **parse_settings(options.env_set))
    serve_mcp(server)
    return 0
