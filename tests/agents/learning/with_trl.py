"""Our GRPO loss beside that of TRL 1.16.0 on the same tokens; `make test-trl` runs it where TRL is installed.

TRL knows rows of one prompt and one completion, and no trajectories. Which of its reductions is which of ours:

- ``loss_type="grpo"`` gives every row the same weight. It is our ``"sequence"`` where each trajectory is one row, as
  it is when prompts grow. Where a trajectory has a row per turn, TRL counts each turn as a trajectory of its own; ours
  (TSR Eq. 13) counts the trajectory once, so that long episodes weigh no more than short ones.
- ``loss_type="bnpo"`` gives every token the same weight. It is our ``"token"``, whatever the rows are.
"""

from dataclasses import replace

import pytest
import torch

from benchmarks.learner_speed import trl_inputs
from tests.agents.learning.test_batch import episode, turn
from tests.agents.tiny import chatml_tokenizer, random_qwen2
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages import grpo
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.learning.learner import token_logprobs
from tsr_gym.agents.learning.losses import Given, StepWeights, policy_loss, token_weights
from tsr_gym.agents.learning.objective import Objective

TEMPERATURE = 0.7
# Two turns in one row, with two tokens of the environment between them; answers of one, two and four tokens.
ONE_ROW = (
    Group(
        0,
        (
            episode(turn([1, 2], [30, 31, 32], 0.0, 0, 0, 0), turn([1, 2, 30, 31, 32, 9, 8], [33], 1.0, 0)),
            episode(turn([1, 2], [34], 0.25, 0)),
            episode(turn([1, 2], [35, 36], -0.5, 0, 0)),
        ),
    ),
    Group(1, (episode(turn([5, 6, 7], [40, 41, 42, 43], 2.0, 0, 0, 0, 0)), episode(turn([5, 6, 7], [44], 0.5, 0)))),
)
# One trajectory of three rows beside one of a single row.
ROW_PER_TURN = (
    Group(
        0,
        (
            episode(
                turn([1, 2], [30, 31], 0.0, 0, 0), turn([8], [32], 0.0, 0), turn([9, 9], [33, 34, 35], 1.0, 0, 0, 0)
            ),
            episode(turn([1, 2], [36, 37], -0.5, 0, 0)),
        ),
    ),
)


@pytest.fixture(scope="module")
def model():
    return random_qwen2(chatml_tokenizer(), context=64)


@pytest.fixture(scope="module")
def make_trainer(tmp_path_factory):
    """Return a function that makes TRL's trainer of a model with a loss type."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    def make(model, loss_type):
        settings = GRPOConfig(
            str(tmp_path_factory.mktemp("trl")),
            loss_type=loss_type,
            beta=0.0,
            epsilon=0.2,
            epsilon_high=0.28,
            temperature=TEMPERATURE,
            num_generations=2,
            per_device_train_batch_size=2,
            use_cpu=True,
            bf16=False,
            report_to="none",
        )
        trainer = GRPOTrainer(
            model,
            reward_funcs=lambda completions, **columns: [0.0] * len(completions),
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": ["nothing"]}),
            processing_class=chatml_tokenizer(),
        )
        trainer.model.eval()
        return trainer

    return make


def batch_of(groups, model):
    """Return the groups' batch, as sampled by a policy whose log-probabilities were somewhat other."""
    batch = collate(groups)
    with torch.no_grad():
        now, _ = token_logprobs(model, batch.ids, batch.present, batch.sampled, temperature=TEMPERATURE)
    noise = torch.randn(now.shape, generator=torch.Generator().manual_seed(3))
    return replace(batch, old_logprobs=now + 0.5 * noise * batch.sampled)


def our_loss(model, batch, weights):
    read = token_logprobs(model, batch.ids, batch.present, batch.sampled, temperature=TEMPERATURE)
    objective = Objective(entropy=0.0, clip_low=0.2, clip_high=0.28)
    return policy_loss(objective, *read, Given.of(batch, grpo(batch), StepWeights(weights)))


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def check_equal(model, make_trainer, batch, aggregation, loss_type):
    """Compare losses, gradients and how much was clipped."""
    ours = our_loss(model, batch, token_weights(batch, aggregation))
    trainer = make_trainer(model, loss_type)
    theirs = trainer.compute_loss(trainer.model, trl_inputs(batch, grpo(batch)))
    assert ours.loss.item() == pytest.approx(theirs.item(), abs=1e-6)
    assert abs(ours.loss.item()) > 0.01
    mine, its = gradients(model, ours.loss), gradients(model, theirs)
    assert all(torch.allclose(mine[name], its[name], atol=1e-5) for name in mine)
    return ours, trainer


def test_a_loss_over_trajectories_of_one_row_is_trls_grpo(model, make_trainer):
    check_equal(model, make_trainer, batch_of(ONE_ROW, model), "sequence", "grpo")


@pytest.mark.parametrize("groups", [ONE_ROW, ROW_PER_TURN], ids=["one row", "row per turn"])
def test_a_loss_over_tokens_is_trls_bnpo_and_as_much_is_clipped(model, make_trainer, groups):
    ours, trainer = check_equal(model, make_trainer, batch_of(groups, model), "token", "bnpo")
    # TRL's log entry of this name is a mean over tokens too.
    (clipped,) = trainer._metrics["eval"]["clip_ratio/region_mean"]
    assert ours.parts["clip_fraction"].item() == pytest.approx(clipped)
    assert 0 < clipped < 1


def test_with_a_row_per_turn_trls_grpo_counts_each_turn_as_a_trajectory(model, make_trainer):
    batch = batch_of(ROW_PER_TURN, model)
    trainer = make_trainer(model, "grpo")
    theirs = trainer.compute_loss(trainer.model, trl_inputs(batch, grpo(batch))).item()
    assert our_loss(model, batch, token_weights(batch, "sequence")).loss.item() != pytest.approx(theirs, abs=1e-2)
    # Our advantages, but the weights of a batch in which every row is a trajectory.
    weights = token_weights(replace(batch, trajectory=torch.arange(len(batch.ids))), "sequence")
    assert our_loss(model, batch, weights).loss.item() == pytest.approx(theirs, abs=1e-6)
