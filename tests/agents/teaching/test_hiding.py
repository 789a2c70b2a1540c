"""Hiding: bursts until success is in the band, and none that goes too far."""

from types import SimpleNamespace

import pytest
import torch

from tsr_gym.agents.teaching.hiding import hide_skill


class Model:
    """Remembers a number as its only weight."""

    weight = torch.tensor(0)

    def state_dict(self):
        return {"weight": self.weight}

    def load_state_dict(self, state):
        self.weight = state["weight"]


def plays(success, valid=1.0):
    return SimpleNamespace(success=success, valid=valid)


def hide(measured, *, found=0.8, bursts=10, **more):
    """Return the model, the rates of the bursts, what was told, and how the model plays at the end."""
    model, rates, notes, measures = Model(), [], [], iter(measured)

    def burst(lr):
        rates.append(lr)
        model.weight = model.weight + 1

    end = hide_skill(
        model,
        burst,
        lambda: next(measures),
        plays(found),
        band=(0.05, 0.2),
        bursts=bursts,
        lr=0.1,
        note=notes.append,
        **more,
    )
    return model, rates, notes, end


def test_poor_play_is_imitated_until_success_is_in_the_band_and_never_below_it():
    # By the model's weight: two steps down, the third one too far; smaller, it lands in the band.
    model, rates, _, end = hide(map(plays, [0.6, 0.4, 0.01, 0.1]))
    assert end.success == 0.1
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.05])
    # The step that went too far was taken back.
    assert model.weight == 3


def test_where_success_is_low_already_nothing_is_done():
    _, rates, notes, end = hide([], found=0.15)
    assert (rates, notes, end.success) == ([], [], 0.15)


def test_a_burst_that_spoils_the_form_is_taken_back():
    model, rates, _, end = hide([plays(0.1, valid=0.4), plays(0.1, valid=0.9)], least_valid=0.7)
    assert (rates, end.valid) == ([0.1, 0.05], 0.9)
    assert model.weight == 1


def test_success_above_the_band_at_the_end_is_told():
    *_, notes, end = hide(map(plays, [0.6, 0.5]), bursts=2)
    assert end.success == 0.5
    assert "still above 0.2" in notes[-1]
