"""Train your Qwen with search: on a processor with a random Qwen2 of the same shape in small, in about a minute.

python -m examples.train_qwen

On a GPU, with a model that you have downloaded, the same flags but larger numbers:

tsr train sokoban --model path/to/Qwen2.5-0.5B-Instruct --search "beam(width=2, branching=4)" --score SokobanScore \
    --groups 8 --trajectories 16 --updates 200 --lora-rank 16 --lr 1e-5 --out runs/qwen
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import tsr_gym
from tsr_gym.agents import cli
from tsr_gym.agents.models.tiny_model import tiny_model
from tsr_gym.agents.models.tokenizer import tiny_tokenizer

SEARCH = ("--search", "beam(width=2, branching=4)", "--score", "SokobanScore")
SMALL = ("--groups", "2", "--trajectories", "2", "--max-tokens", "24", "--minibatch", "4", "--algorithm", "grpo")
SHORT = ("--eval-every", "0", "--eval-instances", "4", "--filter", "none")


def save_small_qwen(folder: Path) -> Path:
    """Write a Qwen2 of random weights with a tokenizer of its own, in Hugging Face form, and return the folder."""
    tokenizer = tiny_tokenizer(["Up", "Down", "Left", "Right", "||", "<think></think>", "#", "_", "O", "X", "P"])
    tiny_model(tokenizer, hidden=32, context=4096).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def train(out: Path, updates: int = 3) -> int:
    """Train such a model on searched trajectories and return the exit status of `tsr train`."""
    with TemporaryDirectory() as folder:
        model = save_small_qwen(Path(folder) / "qwen")
        flags = [*SEARCH, *SMALL, *SHORT, "--model", str(model), "--updates", str(updates), "--out", str(out)]
        return cli.main(["train", "sokoban", *flags])


if __name__ == "__main__":
    print(f"tsr-gym {tsr_gym.__version__}")
    train(Path("runs/small-qwen"))
    cli.main(["tree", "runs/small-qwen"])
