"""Load a player: from the name of a model to the model at play, as the command line names it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.models.settings import ModelConfig

if TYPE_CHECKING:
    from tsr_gym.agents.episodes.model_player import ModelPlayer


def load_player(
    env: str, task: TaskConfig, model: ModelConfig, note: Callable[[str], None] = lambda text: None
) -> "ModelPlayer":
    """Return the model of a configuration, loaded, with its task.

    Args:
        env: Gymnasium id or short name.
        task: What is played.
        model: The model; its name is the folder of a model or of a run, whose latest it then is, or default for the
            small embedded model, which is built at first use.
        note: Told what else is being done, such as building the embedded model.

    Raises:
        ConfigError: The model was made for another environment.
        CheckpointError: The folder holds no model.
        EngineFailed: vLLM does not start, or samples by other weights.
    """
    # Random play needs none of these libraries.
    import torch

    from tsr_gym.agents.episodes.model_player import ModelPlayer
    from tsr_gym.agents.models.language_model import load_policy, pick_device
    from tsr_gym.agents.models.sampling_host import sampling_host
    from tsr_gym.agents.runs.parity import hand_over
    from tsr_gym.agents.teaching.base_model import default_model

    folder = default_model(env, task.env_set, note=note) if model.model == "default" else _model_in(Path(model.model))
    torch.set_num_threads(model.threads)
    policy = load_policy(folder, device=pick_device(model.device))
    player = ModelPlayer(env, task, model, policy, sampling_host(model, folder))
    hand_over(player)
    return player


def _model_in(folder: Path) -> Path:
    from tsr_gym.agents.models.card import check_model_folder
    from tsr_gym.agents.runs.checkpoint import checkpoints

    found = checkpoints(folder)
    model = found[-1] / "model" if found else folder
    check_model_folder(model)
    return model
