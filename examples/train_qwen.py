"""Train your Qwen with search from Python: here a random Qwen2 of the same shape in small, in about a minute on a CPU.

python -m examples.train_qwen

With a model that you have downloaded, on a GPU: the same call with its folder as `model` and larger numbers, or

tsr train sokoban --model path/to/Qwen2.5-0.5B-Instruct --search "beam(width=2, branching=4)" --score SokobanScore \
    --groups 8 --trajectories 16 --updates 200 --lora-rank 16 --lr 1e-5 --out runs/qwen
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.models.tiny_model import tiny_model
from tsr_gym.agents.models.tokenizer import tiny_tokenizer
from tsr_gym.agents.runs.train import FinishedRun, train

SEARCH = {"search": "beam(width=2, branching=4)", "score": "SokobanScore", "algorithm": "grpo", "filter": "none"}
SMALL = {"groups": 2, "trajectories": 2, "minibatch": 4, "max_tokens": 24, "eval_every": 0, "eval_instances": 4}


def save_small_qwen(folder: Path) -> Path:
    """Write a Qwen2 of random weights with its tokenizer, in Hugging Face form, and return the folder."""
    tokenizer = tiny_tokenizer(["Up", "Down", "Left", "Right", "||", "<think></think>", "#", "_", "O", "X", "P"])
    tiny_model(tokenizer, hidden=32, context=4096).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def train_small_qwen(out: Path, updates: int = 3) -> FinishedRun:
    """Train such a model on searched trajectories and return the finished run."""
    with TemporaryDirectory() as folder:
        model = save_small_qwen(Path(folder) / "qwen")
        settings = SEARCH | SMALL | {"model": str(model), "updates": updates, "out": out}
        return train(TrainConfig.from_recipe(env="sokoban", **settings), watch=report)


def report(event: str, record: dict[str, float]) -> None:
    """Print the success of an update or an evaluation."""
    print(event, record["step"], record["success"])


if __name__ == "__main__":
    run = train_small_qwen(Path("runs/small-qwen"))
    print(f"trained model: {run.model}; look at its trees: tsr view {run.folder}")
