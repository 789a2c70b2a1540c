"""Updates that are divided over micro-batches, layouts, processes and interruptions, and runs of two processes.

Parameters count as the same if, after five steps of AdamW, all of them together differ by at most a ten-thousandth of
the distance that they moved (measured: two hundred-thousandths at most). After an interruption with the same number of
processes they are equal. Sums in another order differ by 1e-7, and AdamW divides small gradients by their own size.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from tests.agents.learning.layouts.rows import random_groups
from tests.agents.short_runs import UPDATES, records, short_run, together, train_flags, wait_for
from tests.conftest import ROOT
from tsr_gym import PromptTooLong
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.learning.settings import LearnConfig, Objective
from tsr_gym.agents.models.critic import Critic
from tsr_gym.agents.models.language_model import frozen_reference, load_critic, load_policy, restore_adapter
from tsr_gym.agents.models.settings import LoraSettings
from tsr_gym.agents.models.sharding import whole_tensor
from tsr_gym.agents.processes import ALONE
from tsr_gym.agents.runs.checkpoint import load_checkpoint, save_checkpoint
from tsr_gym.agents.runs.progress import Progress, checkpoints
from tsr_gym.agents.runs.trainer import resume_run, start_run

CPU = torch.device("cpu")
STEPS, STOP = 5, 2
ALL = 999
# Norms of gradients are far above this, so that a wrong norm would show.
SIZES = {"minibatch": ALL, "microbatch": ALL, "microbatch_tokens": 1}
CONFIG = LearnConfig(lr=1e-3, critic_lr=1e-3, grad_clip=0.01, **SIZES, old_logprobs="learner", critic_gradient=0.5)
TOLERANCE = 1e-4

# Changes of the configuration, and the layout.
CASES = {
    f"{rows} rows, {layout}": ({"microbatch": rows}, layout)
    for rows in (1, 2, 8, ALL)
    for layout in ("padded", "packed", "shared")
}
CASES["recomputing, logits in parts"] = {"microbatch": 2, "recompute": True, "logits": "parts"}, "shared"
CASES["offload"] = {"microbatch": 2, "offload": True}, "padded"
FEW = ("1 rows, shared", "8 rows, packed")
FEW_SPREAD = ("2 rows, shared", "offload")
TRAINED_PARTS = {
    "head": {"critic": "head"},
    "lora": {"algorithm": "grpo", "lora_rank": 4},
    "kl": {"algorithm": "grpo", "objective": Objective(kl_weight=0.1)},
}


def begun(processes, folder, **changes):
    """Return a policy from a folder and its learner."""
    config = replace(CONFIG, **changes)
    lora = LoraSettings(rank=config.lora_rank) if config.lora_rank else None
    policy = load_policy(folder, device=CPU, lora=lora)
    if folder.name == "model" and (folder / "lora").exists():
        restore_adapter(policy.model, folder)
    critic = None
    if config.algorithm == "ppo":
        on_policy = config.critic == "head"
        critic = Critic.on(policy.model, gradient=0.5) if on_policy else load_critic(folder, device=CPU)
    reference = frozen_reference(policy) if config.objective.kl_weight else None
    return policy, Learner(policy.model, critic, config, reference=reference, processes=processes)


def stepped(learner, steps, layout="padded"):
    """Take some steps and return the learner's metrics of each."""
    batches = [collate(random_groups(step, trees=1, turns=2), layout=layout) for step in steps]
    return [learner.update(batch, seed=step) for step, batch in zip(steps, batches, strict=True)]


def parameters(learner):
    """Return all parameters, unsharded."""
    models = {"policy": learner.model, "critic": learner.critic} if learner.critic else {"policy": learner.model}
    return {
        f"{owner}.{name}": whole_tensor(value).detach().clone()
        for owner, model in models.items()
        for name, value in model.state_dict().items()
    }


def trained(processes, folder, changes=(), layout="padded"):
    """Return the parameters after all steps, and the metrics of each step."""
    _, learner = begun(processes, folder, **dict(changes))
    metrics = stepped(learner, range(STEPS), layout)
    return parameters(learner), metrics


def trained_in_turn(processes, folder, cases):
    return [trained(processes, folder, *case) for case in cases]


def stopped(processes, folder, run, changes=(), layout="padded"):
    """Take the first steps, and write a checkpoint."""
    policy, learner = begun(processes, folder, **dict(changes))
    stepped(learner, range(STOP), layout)
    save_checkpoint(run, policy, learner, Progress(STOP, 7, 99))


def gone_on(processes, run, changes=(), layout="padded"):
    """Take the other steps from a checkpoint, and return the parameters after them."""
    path = run / "checkpoints" / f"{STOP:06d}"
    _, learner = begun(processes, path / "model", **dict(changes))
    assert load_checkpoint(path, learner) == Progress(STOP, 7, 99)
    stepped(learner, range(STOP, STEPS), layout)
    return parameters(learner)


def distance(first, other):
    return sum(((first[name] - other[name]).double() ** 2).sum() for name in first).sqrt().item()


def check_same(learned, expected, start):
    assert learned.keys() == expected.keys()
    moved = distance(expected, start)
    assert moved > 0.01
    assert distance(learned, expected) <= TOLERANCE * moved


def check_metrics(metrics, expected):
    for line, other in zip(metrics, expected, strict=True):
        assert line == pytest.approx(other, rel=1e-3, abs=1e-5)
        assert line["grad_norm"] > 3 * CONFIG.grad_clip


@pytest.fixture(scope="module")
def start(chat_model):
    return parameters(begun(ALONE, chat_model)[1])


@pytest.fixture(scope="module")
def expected(chat_model):
    return trained(ALONE, chat_model)


def some(names, few):
    """Return names as parameters of a test, of which all but a few are for the deep run."""
    return [name if name in few else pytest.param(name, marks=pytest.mark.deep) for name in names]


@pytest.mark.parametrize("name", some([name for name in CASES if name != "offload"], FEW))
def test_one_process_learns_the_same_with_any_microbatch_and_layout(chat_model, start, expected, name):
    learned, metrics = trained(ALONE, chat_model, *CASES[name])
    check_same(learned, expected[0], start)
    check_metrics(metrics, expected[1])


@pytest.mark.deep
def test_one_process_learns_the_same_with_its_state_in_the_memory_of_the_cpu(chat_model, start, expected):
    # In a new process, because offload joins a process group.
    learned, metrics = together(1, trained, chat_model, *CASES["offload"])[0]
    check_same(learned, expected[0], start)
    check_metrics(metrics, expected[1])


@pytest.mark.parametrize("names", some([FEW_SPREAD, tuple(CASES)], [FEW_SPREAD]), ids=["few", "all"])
def test_two_processes_learn_what_one_does(chat_model, start, expected, names):
    first, second = together(2, trained_in_turn, chat_model, [CASES[name] for name in names])
    for (learned, metrics), (other, other_metrics) in zip(first, second, strict=True):
        check_same(learned, expected[0], start)
        check_metrics(metrics, expected[1])
        assert metrics == other_metrics
        assert all(torch.equal(learned[name], other[name]) for name in learned)


@pytest.mark.parametrize("part", some(TRAINED_PARTS, ["head"]))
def test_two_processes_learn_what_one_does_with_adapters_heads_and_references(chat_model, part):
    changes = TRAINED_PARTS[part]
    learned, _ = together(2, trained, chat_model, changes)[0]
    began = parameters(begun(ALONE, chat_model, **changes)[1])
    check_same(learned, trained(ALONE, chat_model, changes)[0], began)


@pytest.mark.deep
def test_three_processes_whose_rows_do_not_divide_learn_what_one_does(chat_model, start, expected):
    learned, metrics = together(3, trained, chat_model, *CASES["2 rows, packed"])[0]
    check_same(learned, expected[0], start)
    check_metrics(metrics, expected[1])


@pytest.mark.parametrize("case", some(["2 rows, packed", "8 rows, shared"], ["2 rows, packed"]))
def test_one_process_resumes_bit_for_bit(chat_model, tmp_path, case):
    stopped(ALONE, chat_model, tmp_path, *CASES[case])
    learned, whole = gone_on(ALONE, tmp_path, *CASES[case]), trained(ALONE, chat_model, *CASES[case])[0]
    assert all(torch.equal(learned[name], whole[name]) for name in whole)


@pytest.mark.parametrize("sizes", some([(2, 1), (1, 2), (2, 2), (3, 2)], [(2, 1), (1, 2)]), ids=str)
def test_a_run_resumes_with_another_number_of_processes(chat_model, tmp_path, start, expected, sizes):
    before, after = sizes
    case = CASES["2 rows, packed"]
    in_world(before, stopped, chat_model, tmp_path, *case)
    written = {path.name for path in (tmp_path / "checkpoints" / f"{STOP:06d}").glob("state-*")}
    assert written == {f"state-{rank:05d}-of-{before:05d}.safetensors" for rank in range(before)}
    for learned in in_world(after, gone_on, tmp_path, *case):
        check_same(learned, expected[0], start)
    if before == after:
        whole, _ = in_world(after, trained, chat_model, *case)[0]
        assert all(torch.equal(learned[name], whole[name]) for name in whole)


@pytest.mark.parametrize("part", some(TRAINED_PARTS, []))
def test_two_processes_resume_with_adapters_heads_and_references(chat_model, tmp_path, part):
    in_world(2, stopped, chat_model, tmp_path, TRAINED_PARTS[part])
    learned, other = in_world(2, gone_on, tmp_path, TRAINED_PARTS[part])
    (whole, _), _ = in_world(2, trained, chat_model, TRAINED_PARTS[part])
    if part != "kl":
        # These tests resume with a new copy of the policy as the reference.
        assert all(torch.equal(learned[name], whole[name]) for name in whole)
    assert all(torch.equal(learned[name], other[name]) for name in learned)


def in_world(size, work, *args):
    return [work(ALONE, *args)] if size == 1 else together(size, work, *args)


def on_gpu(processes, folder, offload):
    """Take all steps on a GPU, sampling in between, and return the parameters."""
    policy = load_policy(folder, device=torch.device("cuda"))
    critic = load_critic(folder, device=torch.device("cuda"))
    learner = Learner(policy.model, critic, replace(CONFIG, microbatch=2, offload=offload), processes=processes)
    for step in range(STEPS):
        with learner.sampling(), torch.inference_mode():
            assert policy.model(input_ids=torch.ones(1, 3, dtype=torch.int64, device="cuda")).logits.isfinite().all()
        stepped(learner, [step], "shared")
    return {name: value.cpu() for name, value in parameters(learner).items()}


@pytest.mark.gpu
def test_a_gpu_learns_the_same_with_its_state_in_the_memory_of_the_cpu(chat_model):
    (learned,), (expected,) = (together(1, on_gpu, chat_model, offload) for offload in (True, False))
    moved = distance(expected, {name: value.cpu() for name, value in parameters(begun(ALONE, chat_model)[1]).items()})
    assert distance(learned, expected) <= 1e-2 * moved


def train(processes, config, model_dir, stops=None):
    """Train and return the events that this process saw; the process `stops` asks to stop after each update."""
    seen = []
    trainer = start_run(config, model_dir, processes)

    def watch(event, record):
        seen.append((event, record["step"]))

    return trainer.run(watch=watch, stop=lambda: processes.rank == stops), seen


def go_on(processes, run, updates):
    return resume_run(run, updates=updates, processes=processes).run()


def weights(run):
    last = checkpoints(run)[-1]
    assert last.name == f"{UPDATES:06d}"
    return {**load_file(last / "model" / "model.safetensors"), **load_file(last / "critic.safetensors")}


def check_equal_runs(run, other):
    """Check that two runs sampled the same and learned the same up to rounding."""
    for name in ("metrics", "evaluations"):
        for line, expected in zip(records(run, name), records(other, name), strict=True):
            assert line.keys() == expected.keys()
            # Several processes sample by transformers, which saves fewer prompt tokens than the engine of one process.
            for key in expected.keys() - {"prompt_tokens_saved"}:
                value = expected[key]
                near = pytest.approx(value, rel=1e-3, abs=1e-4) if isinstance(value, float) else value
                assert line[key] == near, key
    ours, theirs = weights(run), weights(other)
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)


def test_two_processes_make_the_run_that_one_makes_and_only_the_first_one_writes(undisturbed, base_model, tmp_path):
    run = tmp_path / "run"
    (finished, seen), (also_finished, unseen) = together(2, train, short_run(run, base_model), base_model)
    assert finished
    assert also_finished
    assert [step for event, step in seen if event == "update"] == list(range(1, UPDATES + 1))
    assert unseen == []
    check_equal_runs(run, undisturbed)
    assert len(list((run / "tensorboard").iterdir())) == 1
    assert {path.name for path in run.iterdir()} == {path.name for path in undisturbed.iterdir()}


def test_a_stop_in_one_process_stops_all_and_one_process_resumes_alone(undisturbed, base_model, tmp_path):
    run = tmp_path / "run"
    assert [finished for finished, _ in together(2, train, short_run(run, base_model), base_model, 1)] == [False, False]
    assert [path.name for path in checkpoints(run)] == ["000000", "000001"]
    assert resume_run(run).run()
    check_equal_runs(run, undisturbed)


def outgrow(processes, config, model_dir):
    """Train with searches of one process that grow too long in the second update; return the error of this process."""
    trainer = start_run(config, model_dir, processes)
    real = trainer.parts.collector.collect

    def collect(first, count, starts, **settings):
        if processes.rank == 1 and trainer.progress.update == 1:
            raise PromptTooLong("too long here")
        return real(first, count, starts, **settings)

    trainer.parts.collector.collect = collect
    try:
        trainer.run()
    except PromptTooLong as error:
        return str(error)


def test_an_error_in_one_process_ends_all_with_the_same_error_and_a_checkpoint(base_model, tmp_path):
    run = tmp_path / "run"
    assert together(2, outgrow, short_run(run, base_model), base_model) == ["too long here"] * 2
    assert checkpoints(run)[-1].name == "000001"


def torchrun(log, *args):
    """Start the `tsr` command in two processes that torchrun looks after; their output goes into a folder."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--log-dir", str(log), "--redirects", "3", "-m", "tsr_gym", *map(str, args)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)


def workers(process):
    """Return the ids of the processes that torchrun started, by rank."""
    command = ["ps", "-o", "pid=", "--ppid", str(process.pid)]
    children = subprocess.run(command, capture_output=True, text=True, check=True)
    by_rank = {}
    for pid in map(int, children.stdout.split()):
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(part.partition(b"=")[::2] for part in file.read().split(b"\0"))
        if b"RANK" in variables:
            by_rank[int(variables[b"RANK"])] = pid
    return by_rank


@pytest.mark.deep
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="finds processes in /proc")
@pytest.mark.parametrize("victim", [0, 1])
def test_killing_one_of_two_ends_the_other_with_a_clear_error_and_the_run_can_be_resumed(
    undisturbed, base_model, tmp_path, victim
):
    run, log = tmp_path / "run", tmp_path / "log"
    flags = {"--updates": 500, "--checkpoint-every": 2, "--eval-every": 0}
    process = torchrun(log, *train_flags(run, base_model, **flags))
    try:
        wait_for(lambda: process.poll() is None, lambda: len(checkpoints(run)) > 1, timeout=300)
        began = time.monotonic()
        os.kill(workers(process)[victim], signal.SIGKILL)
        assert process.wait(timeout=120) != 0
        seconds = time.monotonic() - began
    finally:
        process.terminate()
        process.wait(timeout=60)
    output = [path.read_text() for path in log.rglob(f"{1 - victim}/stderr.log")]
    assert len(output) == 1
    assert f"tsr train: process {1 - victim} of 2: another process of this run has ended" in output[0]
    assert "continue from the last checkpoint with tsr train --resume FOLDER" in output[0]
    assert "Traceback" not in output[0]
    assert seconds < 60
    # The checkpoint is complete: two processes resume it, and then one.
    done = int(checkpoints(run)[-1].name)
    assert done >= 2
    for updates, size in ((done + 2, 2), (done + 4, 1)):
        assert in_world(size, go_on, run, updates) == [True] * size
        assert checkpoints(run)[-1].name == f"{updates:06d}"
    assert [record["step"] for record in records(run)] == list(range(1, done + 5))


@pytest.mark.deep
def test_a_process_without_an_instance_learns_with_the_others(base_model, tmp_path):
    together(2, train, short_run(tmp_path / "run", base_model, search={"groups": 1}), base_model)
    alone = start_run(short_run(tmp_path / "alone", base_model, search={"groups": 1}), base_model)
    assert alone.run()
    check_equal_runs(tmp_path / "run", tmp_path / "alone")
