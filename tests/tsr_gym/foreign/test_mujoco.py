"""What is saved of a simulation, read off an imitation of one: which arrays, counters and warnings."""

from types import SimpleNamespace

import numpy as np

from tsr_gym.foreign.mujoco import _arrays_of


def imitation():
    buffer, warnings = np.arange(8.0), np.zeros((2, 3), np.int32)
    return SimpleNamespace(
        qpos=buffer[:3],
        qvel=buffer[3:5],
        nbuffer=buffer.nbytes,
        energy=np.array([1.5, 2.5]),
        solver_niter=np.array([7], np.int32),
        solver_nnz=np.zeros(0, np.int32),
        efc_force=np.ones(4),
        flg_energypos=True,
        warning=SimpleNamespace(lastinfo=warnings[:, 0], number=warnings[:, 1]),
        time=0.0,
    )


def test_results_of_a_step_beside_the_buffer_are_saved_and_those_in_the_arena_are_not():
    data = imitation()
    arrays = _arrays_of(data)
    saved = b"".join(view.tobytes() for view in arrays.views)
    for there in (data.energy, data.solver_niter, data.qpos, data.qvel):
        assert there.tobytes() in saved
    assert len(saved) == data.energy.nbytes + data.solver_niter.nbytes + data.qpos.nbytes + data.qvel.nbytes
    arrays.views[0][:] = 0
    assert data.energy.tolist() == [0, 0]


def test_counters_and_warnings_of_this_version_are_saved():
    data = imitation()
    arrays = _arrays_of(data)
    assert arrays.names == ("flg_energypos",)
    arrays.warnings[1][:] = [3, 4]
    assert data.warning.number.tolist() == [3, 4]
    del data.warning
    assert _arrays_of(data).warnings == ()
