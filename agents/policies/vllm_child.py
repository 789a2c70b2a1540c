"""vLLM's own server as a child that never outlives its owner: `python -m tsr_gym.agents.policies.vllm_child FLAGS`.

It ends itself and its own children when its standard input does, which happens however the owner ends.
"""

import os
import runpy
import signal
import sys
from threading import Thread

SERVER = "vllm.entrypoints.openai.api_server"


def end_with_owner() -> None:
    """Kill the process group that this process leads, as soon as the other end of its standard input is closed."""
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    Thread(target=end_with_owner, daemon=True).start()
    sys.argv[0] = SERVER
    runpy.run_module(SERVER, run_name="__main__", alter_sys=True)
