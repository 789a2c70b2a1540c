"""Checkpoints: all state is restored bit for bit, and damage, gaps and full disks are errors that change nothing."""

import copy
import errno
import json
import resource
import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from tests.agents.learning.test_learner import CONFIG, make_batch
from tsr_gym import CheckpointError, files
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.models.language_model import load_critic, load_policy
from tsr_gym.agents.models.settings import ModelCard
from tsr_gym.agents.runs.checkpoint import drop_old, load_checkpoint, save_checkpoint
from tsr_gym.agents.runs.progress import Progress, checkpoints

CPU = torch.device("cpu")
SETTINGS = replace(CONFIG, lr=0.01, critic_lr=0.01)
STATE = "state-00000-of-00001.safetensors"


def learner_of(folder, *, algorithm="ppo"):
    policy = load_policy(folder, device=CPU)
    critic = load_critic(folder, device=CPU) if algorithm == "ppo" else None
    return policy, Learner(policy.model, critic, replace(SETTINGS, algorithm=algorithm))


def everything(policy, learner):
    """Return all tensors that decide what a learner does next."""
    tensors = dict(policy.model.state_dict())
    if learner.critic is not None:
        tensors |= {f"critic.{name}": value for name, value in learner.critic.state_dict().items()}
    for name, optimizer in learner.optimizers.items():
        for number, state in optimizer.state_dict()["state"].items():
            tensors |= {f"{name}.{number}.{key}": torch.as_tensor(value) for key, value in state.items()}
    return {name: value.clone() for name, value in tensors.items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, chat_model):
    """A run after one update with a checkpoint, and the learner that it was made from."""
    policy, learner = learner_of(chat_model)
    learner.update(make_batch(policy.model), seed=1)
    folder = tmp_path_factory.mktemp("saved")
    save_checkpoint(folder, policy, learner, Progress(3, 24, 999))
    return folder, policy, learner


@pytest.fixture
def run(saved, tmp_path):
    """A copy of the saved run and of its learner, which a test may change."""
    folder, policy, learner = saved
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    copied = copy.deepcopy({"model": policy.model, "learner": learner})
    return tmp_path, policy._replace(model=copied["model"]), copied["learner"]


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_a_checkpoint_brings_everything_back_and_the_next_update_is_the_same(tmp_path, chat_model, algorithm):
    policy, learner = learner_of(chat_model, algorithm=algorithm)
    batch = make_batch(policy.model)
    learner.update(batch, seed=1)
    torch.rand(3)
    save_checkpoint(tmp_path, policy, learner, Progress(3, 24, 999))
    after = torch.rand(5)
    path = tmp_path / "checkpoints" / "000003"
    again, twin = learner_of(path / "model", algorithm=algorithm)
    torch.rand(7)
    assert load_checkpoint(path, twin) == Progress(3, 24, 999)
    assert torch.equal(torch.rand(5), after)
    assert same(everything(policy, learner), everything(again, twin))
    assert len(everything(again, twin)) > 3 * len(policy.model.state_dict())
    assert learner.update(batch, seed=2) == twin.update(batch, seed=2)
    assert same(everything(policy, learner), everything(again, twin))


def test_the_model_in_a_checkpoint_can_be_loaded_like_any_other(tmp_path, base_model, run):
    policy, learner = learner_of(base_model)
    save_checkpoint(tmp_path, policy, learner, Progress())
    folder = tmp_path / "checkpoints" / "000000" / "model"
    again = load_policy(folder, device=CPU)
    assert again.card == policy.card != ModelCard()
    assert again.tokenizer("P b3 X c2")["input_ids"] == policy.tokenizer("P b3 X c2")["input_ids"]
    assert again.tokenizer.chat_template == policy.tokenizer.chat_template
    folder, policy, learner = run
    file = folder / "checkpoints" / "000003" / "progress.json"
    counts = {"update": 3, "tasks": 24, "sampled_tokens": 999, "prompt_tokens": 0, "optimizer_steps": 0}
    assert json.loads(file.read_text()) == counts
    before = file.stat().st_mtime_ns
    save_checkpoint(folder, policy, learner, Progress(3, 25, 1000))
    assert file.stat().st_mtime_ns == before


FILES = [
    "critic.safetensors", STATE, "gradients.json", "progress.json", "model/config.json", "model/model.safetensors",
    "model/tokenizer.json", "model/tsr_gym.json",
]  # fmt: skip


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", ["missing", "cut", "one bit"])
def test_a_missing_or_damaged_file_is_named(run, name, harm):
    folder, policy, learner = run
    path = folder / "checkpoints" / "000003"
    file = path / name
    data = file.read_bytes()
    if harm == "missing":
        file.unlink()
    else:
        middle = len(data) // 2
        rest = b"" if harm == "cut" else bytes([data[middle] ^ 4]) + data[middle + 1 :]
        file.write_bytes(data[:middle] + rest)
    before = everything(policy, learner)
    with pytest.raises(CheckpointError, match=rf"{name}: missing or damaged: delete 000003 and resume"):
        load_checkpoint(path, learner)
    assert same(before, everything(policy, learner))


def test_a_checkpoint_of_another_algorithm_is_refused(run, chat_model):
    folder, *_ = run
    path = folder / "checkpoints" / "000003"
    _, without_critic = learner_of(path / "model", algorithm="grpo")
    # A critic that the learner does not have is ignored.
    load_checkpoint(path, without_critic)
    other = folder / "other"
    policy, learner = learner_of(chat_model, algorithm="grpo")
    save_checkpoint(other, policy, learner, Progress(1))
    _, with_critic = learner_of(chat_model)
    with pytest.raises(CheckpointError, match="000001: not a checkpoint of this run"):
        load_checkpoint(other / "checkpoints" / "000001", with_critic)


@contextmanager
def small_disk(size):
    """Let no file of this process grow beyond a size, as a full disk would not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("fits", ["nothing", "the model's texts", "the model", "model and critic"])
def test_a_full_disk_leaves_earlier_checkpoints_and_no_piece_of_the_new_one(run, fits):
    folder, policy, learner = run
    earlier = folder / "checkpoints" / "000003"
    sizes = {name: (earlier / name).stat().st_size for name in FILES}
    assert sizes["model/tokenizer.json"] < sizes["model/model.safetensors"] < sizes[STATE]
    size = {
        "nothing": 0,
        "the model's texts": sizes["model/tokenizer.json"] + 10,
        "the model": sizes["model/model.safetensors"] + 10,
        "model and critic": max(sizes["model/model.safetensors"], sizes["critic.safetensors"]) + 10,
    }[fits]
    files_before = sorted(folder.rglob("*"))
    message = r"000004 could not be written .*earlier checkpoints are untouched: make room and resume"
    with small_disk(size), pytest.raises(CheckpointError, match=message):
        save_checkpoint(folder, policy, learner, Progress(4))
    assert sorted(folder.rglob("*")) == files_before
    assert load_checkpoint(earlier, learner) == Progress(3, 24, 999)
    # With room it works.
    save_checkpoint(folder, policy, learner, Progress(4))
    assert [path.name for path in checkpoints(folder)] == ["000003", "000004"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_at_the_very_end_is_no_different(run, monkeypatch, call):
    folder, policy, learner = run
    files_before = sorted(folder.rglob("*"))

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, call, full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        save_checkpoint(folder, policy, learner, Progress(4))
    assert sorted(folder.rglob("*")) == files_before


def test_only_whole_checkpoints_are_listed_in_order_and_the_latest_are_kept(run):
    folder, policy, learner = run
    for update in (10, 9, 11):
        save_checkpoint(folder, policy, learner, Progress(update))
    home = folder / "checkpoints"
    for name in (".000012.partial", "000012_backup", "12", "0000012"):
        shutil.copytree(home / "000011", home / name)
    (home / "000099").write_text("")
    assert [path.name for path in checkpoints(folder)] == ["000003", "000009", "000010", "000011"]
    drop_old(folder, 2)
    assert [path.name for path in checkpoints(folder)] == ["000010", "000011"]
    drop_old(folder, 5)
    assert (len(checkpoints(folder)), checkpoints(folder / "nowhere")) == (2, [])
    for update in (1_000_000, 999_999):
        save_checkpoint(folder, policy, learner, Progress(update))
    assert [path.name for path in checkpoints(folder)][-2:] == ["999999", "1000000"]


def test_a_half_written_checkpoint_of_a_killed_run_is_replaced(run):
    folder, policy, learner = run
    left = folder / "checkpoints" / ".000004.partial"
    left.mkdir()
    (left / "junk").write_text("half")
    save_checkpoint(folder, policy, learner, Progress(4))
    assert load_checkpoint(folder / "checkpoints" / "000004", learner).update == 4
    assert not left.exists()
    assert not (folder / "checkpoints" / "000004" / "junk").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("progress.json", text) for text in ('"text"', "null", "[3, 24, 999]", "7", "{", "[" * 100_000)),
        *(("progress.json", f'{{"update": {value}}}') for value in ('"three"', "null", "true", "3.0", "-1", "[3]")),
        ("progress.json", '{"update": 3, "extra": 1}'),
        *(("gradients.json", text) for text in ('"text"', "null", "[]", "{}", '{"norms": 3, "skipped": 0}')),
        *(("gradients.json", text) for text in ('{"norms": "ab", "skipped": 0}', '{"norms": [], "skipped": "0"}')),
    ],
)
def test_a_checkpoint_with_counts_that_are_no_numbers_is_refused_and_changes_nothing(run, name, text):
    folder, policy, learner = run
    path = folder / "checkpoints" / "000003"

    def write(new):
        shutil.copytree(path, new, dirs_exist_ok=True)
        (new / name).write_text(text)

    files.write_folder(folder / "checkpoints" / "000004", write)
    learner.update(make_batch(policy.model), seed=2)
    before = everything(policy, learner)
    with pytest.raises(CheckpointError, match=r"000004: not a checkpoint of this run"):
        load_checkpoint(folder / "checkpoints" / "000004", learner)
    assert same(before, everything(policy, learner))


def test_checkpoints_without_state_or_of_an_old_format_are_refused(run):
    folder, _, learner = run
    path = folder / "checkpoints" / "000003"
    manifest = json.loads((path / files.MANIFEST).read_text())
    del manifest[STATE]
    (path / files.MANIFEST).write_text(json.dumps(manifest))
    (path / STATE).unlink()
    with pytest.raises(CheckpointError, match="000003: not a checkpoint of this run"):
        load_checkpoint(path, learner)
    (path / "optimizers.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"000003: an old format.* by --model .*model"):
        load_checkpoint(path, learner)
