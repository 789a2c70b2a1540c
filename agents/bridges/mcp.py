"""MCP: a world as a server of the Model Context Protocol, with its tools and with snapshots by name."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym

from tsr_gym.agents.bridges.openenv import Seen, Session
from tsr_gym.errors import ConfigError, TsrGymError
from tsr_gym.optional import require
from tsr_gym.registration import env_id
from tsr_gym.text_env import TextEnv
from tsr_gym.tools import Tool, mismatch
from tsr_gym.version import __version__
from tsr_gym.wrappers.tool_calls import Call, action_of

# Names under which a client keeps snapshots; more of them are refused, because each holds a whole state.
MAX_SNAPSHOTS = 1000
_NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}
OWN_TOOLS = (
    Tool("reset", "Begin an episode.", {"type": "object", "properties": {"seed": {"type": "integer", "minimum": 0}}}),
    Tool("observe", "Show the last observation again; costs no turn.", _NOTHING),
    Tool("snapshot", "Keep the current state under a name, to return to it with restore.", _NAME),
    Tool("restore", "Return to the state that was kept under a name; everything after it is undone.", _NAME),
)
# For worlds without tools.
ACT = Tool(
    "act",
    "Take a turn.",
    {"type": "object", "properties": {"action": {"type": "string"}}, "required": ["action"]},
)


class Desk:
    """An episode that is played by calls of tools; without the package mcp.

    Args:
        env: An environment of text.

    Raises:
        ConfigError: It is not made of text, or one of its tools has the name of one of `OWN_TOOLS`.
    """

    def __init__(self, env: gym.Env[str, str]) -> None:
        base = env.unwrapped
        if not isinstance(base, TextEnv):
            raise ConfigError(f"wanted an environment of text (a tsr_gym.TextEnv), got a {type(base).__name__}")
        self.tools: tuple[Tool, ...] = (*(base.tools or (ACT,)), *OWN_TOOLS)
        if len({tool.name for tool in self.tools}) < len(self.tools):
            raise ConfigError(f"a tool of the world is named as one of {[tool.name for tool in OWN_TOOLS]}")
        self.instructions = base.instructions
        self._base = base
        self._session = Session(env)
        self._seen = self._session.reset(seed=0)
        self._kept: dict[str, tuple[str, Seen]] = {}
        self._own: dict[str, Callable[..., Seen]] = {
            "reset": self._session.reset,
            "observe": lambda: self._seen,
            "snapshot": self._keep,
            "restore": self._return,
        }

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[Seen, str]:
        """Return the result of a call, and why it failed, "" if it did not.

        A wrong call of a world's tool costs a turn, as in training.
        """
        own = next((tool for tool in OWN_TOOLS if tool.name == name), None)
        if own is not None:
            given = {key: value for key, value in arguments.items() if key in own.parameters["properties"]}
            reason = mismatch(own.parameters, given)
            try:
                self._seen = self._seen if reason else self._own[name](**given)
            except (TsrGymError, ValueError) as error:
                reason = str(error)
            return self._seen, reason
        if self._seen.terminated or self._seen.truncated:
            return self._seen, "the episode has ended: call reset or restore"
        action, reason = self._action(name, arguments)
        self._seen = self._session.step(action)
        return self._seen, reason or ("" if self._seen.info["action_is_valid"] else self._seen.info["invalid_reason"])

    def _action(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
        if self._base.tools:
            return action_of(self._base, Call(name, dict(arguments)))
        reason = mismatch(ACT.parameters, dict(arguments)) if name == ACT.name else f"there is no tool {name[:80]!r}"
        return ("", reason) if reason else (arguments["action"], "")

    def _keep(self, name: str) -> Seen:
        if len(self._kept) >= MAX_SNAPSHOTS and name not in self._kept:
            raise ValueError(f"wanted at most {MAX_SNAPSHOTS} snapshots: use a name again")
        self._kept[name] = (self._session.token(), self._seen)
        return self._seen

    def _return(self, name: str) -> Seen:
        if name not in self._kept:
            raise ValueError(f"there is no snapshot {name[:80]!r}: wanted one of {sorted(self._kept)[:20]}")
        token, seen = self._kept[name]
        self._session.enter(token)
        return seen


def mcp_server(env: str, **settings: Any) -> Any:
    """Return a server of the package mcp for an environment of text, with one episode.

    Args:
        env: Gymnasium id or short name.
        settings: Of the environment.

    Raises:
        ConfigError: The environment is not made of text, or a setting is unknown.
        MissingExtra: The package mcp is not installed.
    """
    require("mcp", "mcp")
    from mcp import types
    from mcp.server.lowlevel import Server

    try:
        desk = Desk(gym.make(env_id(env), **settings))
    except TypeError as error:
        raise ConfigError(f"{env} cannot be made with {settings}: {error}") from error
    listed = [
        types.Tool(name=tool.name, description=tool.description, input_schema=dict(tool.parameters))
        for tool in desk.tools
    ]

    async def list_tools(context: Any, params: Any) -> Any:
        return types.ListToolsResult(tools=listed)

    async def call_tool(context: Any, params: Any) -> Any:
        seen, reason = desk.call(params.name, params.arguments or {})
        texts = [f"Error: {reason}", seen.text] if reason else [seen.text]
        facts = {"reward": seen.reward, "terminated": seen.terminated, "truncated": seen.truncated, "info": seen.info}
        return types.CallToolResult(
            content=[types.TextContent(type="text", text="\n".join(texts))],
            structured_content=json.loads(json.dumps(facts)),
            is_error=bool(reason),
        )

    rules = f"{desk.instructions}\nCall reset to begin."
    name = env_id(env)
    return Server(name, version=__version__, instructions=rules, on_list_tools=list_tools, on_call_tool=call_tool)


def serve_mcp(server: Any) -> None:
    """Serve one client over standard input and output, until it closes them."""
    import asyncio

    from mcp.server.stdio import stdio_server

    async def run() -> None:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    asyncio.run(run())
