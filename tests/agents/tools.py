"""A world with two tools, and the parts of published chat templates that write tools and their results."""

from typing import NamedTuple

import gymnasium as gym

from tsr_gym import Limits, Step, TextEnv, Tool

HERMES = (
    "{% if tools %}<|im_start|>system\n{{ messages[0].content }}\n# Tools\nReturn <tool_call></tool_call>.\n"
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages[1:] %}"
    "{% if message.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ message.content }}\n</tool_response>"
    "<|im_end|>\n"
    "{% else %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Llama 3.1: tools in the first user message, and results as strings of JSON.
LLAMA = (
    "{{ '<|begin_of_text|>' }}{% if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}"
    "{% set messages = messages[1:] %}{% endif %}<|start_header_id|>system<|end_header_id|>\n\n{{ system }}<|eot_id|>"
    "{% set first = messages[0].content | trim %}{% set messages = messages[1:] %}"
    "<|start_header_id|>user<|end_header_id|>\n\n{% for tool in tools %}{{ tool | tojson(indent=4) }}\n\n{% endfor %}"
    "{{ first }}<|eot_id|>{% for message in messages %}{% if message.role == 'tool' %}"
    "<|start_header_id|>ipython<|end_header_id|>\n\n{% if message.content is mapping or message.content is iterable %}"
    "{{ message.content | tojson }}{% else %}{{ message.content }}{% endif %}<|eot_id|>{% else %}"
    "<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n{{ message.content | trim }}<|eot_id|>{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
# Mistral v0.3: answers in plain text have to take turns with the user's messages, and identifiers have nine signs.
MISTRAL = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}"
    "{% endif %}{% set ns = namespace(index=0) %}{% for message in messages %}"
    "{% if message.role in ('user', 'assistant') %}"
    "{% if (message.role == 'user') != (ns.index % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% set ns.index = ns.index + 1 %}{% endif %}{% endfor %}<s>"
    "{% for message in messages %}{% if message.role == 'user' %}[AVAILABLE_TOOLS] {{ tools | tojson }}"
    "[/AVAILABLE_TOOLS][INST] {{ system }}\n\n{{ message.content }}[/INST]{% elif message.role == 'tool' %}"
    "{% if message.tool_call_id | length != 9 %}{{ raise_exception('nine signs') }}{% endif %}"
    '[TOOL_RESULTS] {"content": {{ message.content }}, "call_id": "{{ message.tool_call_id }}"}[/TOOL_RESULTS]'
    "{% else %} {{ message.content | trim }}</s>{% endif %}{% endfor %}{# [TOOL_CALLS] #}"
)
# Qwen3: thoughts before the last message of the user are dropped; those in an episode with tools stay.
QWEN3 = (
    "{% if tools %}<|im_start|>system\n{{ messages[0].content }}\n<tool_call>\n"
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% set ns = namespace(last=0) %}{% for message in messages %}{% if message.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for message in messages[1:] %}"
    "{% if message.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ message.content }}\n</tool_response>"
    "<|im_end|>\n"
    "{% elif message.role == 'assistant' %}<|im_start|>assistant\n"
    "{% if loop.index0 + 1 > ns.last %}{{ message.content }}{% else %}{{ message.content.split('</think>')[-1] }}"
    "{% endif %}"
    "<|im_end|>\n{% else %}<|im_start|>user\n{{ message.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Hermes 2 Pro: the name of the tool next to its result, and an error without it.
NAMED = HERMES.replace(
    "{{ message.content }}\n</tool_response>",
    "{% if not message.name is defined %}{{ raise_exception('a name') }}{% endif %}"
    '{"name": "{{ message.name }}", "content": {{ message.content | tojson }}}\n</tool_response>',
)
TEMPLATES = {"hermes": HERMES, "named": NAMED, "llama": LLAMA, "mistral": MISTRAL, "qwen3": QWEN3}
MARKS = ["<|eot_id|>", "<|python_tag|>", "[TOOL_CALLS]", "</s>"]

PUT = Tool(
    "put",
    "Put a number of things into a box.",
    {
        "type": "object",
        "properties": {"thing": {"type": "string", "enum": ["pen", "cup"]}, "count": {"type": "integer"}},
        "required": ["thing"],
        "additionalProperties": False,
    },
)
CLOSE = Tool("close", "Close the box, which ends the episode.", {"type": "object", "properties": {}})


class Box(NamedTuple):
    things: tuple[str, ...] = ()
    is_closed: bool = False


class BoxEnv(TextEnv[Box]):
    """Put things into a box and close it."""

    draws_noise = False
    instructions = "Put a pen into the box and close it."
    tools = (PUT, CLOSE)

    def __init__(self, **settings):
        super().__init__((), limits=Limits(max_turns=6), separator=None, **settings)

    def initial(self, rng, options):
        return Box()

    def transition(self, state, action, rng):
        if action == "close()":
            return Step(Box(state.things, True), float("pen" in state.things), True, {})
        if not action.startswith("put("):
            return Step(state, 0.0, False, {"action_is_valid": False, "invalid_reason": f"no call: {action!r}"})
        thing = action.partition('thing="')[2].partition('"')[0]
        return Step(Box((*state.things, thing)), 0.0, False, {})

    def observe(self, state):
        return 'The "box" holds:\n' + (", ".join(state.things) or "nothing")

    def is_success(self, state):
        return state.is_closed and "pen" in state.things


gym.register("tests/Box-v0", "tests.agents.tools:BoxEnv")
