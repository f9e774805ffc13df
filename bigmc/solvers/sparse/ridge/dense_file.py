"""Descent on a dense matrix of samples that do not fit into memory: it lies in a scratch file.

The shards are read once; each step goes through the file, whose rows need no decoding, once more.
"""

from __future__ import annotations

import errno

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import give_back_free_pages
from bigmc.kernels.linear.arguments import Rows
from bigmc.progress import Progress
from bigmc.solvers.sparse.coefficients import slabs
from bigmc.solvers.sparse.memory_plan import WORKSPACE
from bigmc.solvers.sparse.ridge import dense_descent
from bigmc.solvers.sparse.ridge.block_plan import BlockPlan, plan_rows
from bigmc.solvers.sparse.ridge.block_reader import BlockReader
from bigmc.solvers.sparse.ridge.dense_problem import DenseRows, Stop
from bigmc.solvers.sparse.ridge.near_rows import Room
from bigmc.solvers.sparse.run import MANY_FEATURES, SparseRun
from bigmc.solvers.sparse.state import Start
from bigmc.store.files.file_array import file_array, give_back_pages

_ROWS = 1024
"""Rows that are written at once."""
_LEFT, _FEWEST = 4, 8
"""Passes that are left for the certificate, and passes of a descent at least."""


def start_from_file(run: SparseRun, tol: float) -> tuple[Start, int] | None:
    """Return the weights of descent on a dense matrix in a file, and the reads of all rows that took.

    None where it does not apply, or does not fit into memory or on the disk.

    Parameters
    ----------
    tol : float
        As in `dense_descent.start_by_descent`.
    """
    most = run.limits.max_passes - _LEFT
    n_used = int(np.count_nonzero(run.task.dataset.column_nnz()))
    if n_used < MANY_FEATURES or most < _FEWEST or not dense_descent.applies(run):
        return None
    plan, room = plan_rows(run), _room(run, n_used + 1)
    if plan is None or room is None:
        return None
    task, scratch = run.task, run.context.scratch
    n_rows, n_classes = task.dataset.n_samples, task.dataset.n_classes
    try:
        values = file_array((n_rows, n_used + 1), np.float32, scratch)
        margins = file_array((n_classes, n_rows), np.float32, scratch)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return None
    _write_rows(run, plan, values)
    give_back_free_pages()
    weights = np.ones(task.dataset.n_samples) if task.sample_weight is None else task.sample_weight
    rows = DenseRows(values, weights.astype(np.float32), task.dataset.label_sets())
    stop = Stop(run.context.ends, most)
    found = dense_descent.start_on_rows(run, rows, tol, dense_descent.Near(room, margins), stop)
    give_back_free_pages()
    return None if found is None else (found[0], found[1] + 1)


def _room(run: SparseRun, width: int) -> Room | None:
    """Return the memory for classes by themselves; None where there is not enough for all this."""
    task, n_threads = run.task, run.context.local_engine.n_threads
    n_rows = task.dataset.n_samples
    beside = dense_descent.memory_beside(task, n_threads) + WORKSPACE + 24 * task.dataset.n_features
    beside += n_rows * (16 + 8 * task.dataset.most_labels())
    return Room.of(width, n_rows, run.limits.memory - beside, n_threads)


def _write_rows(run: SparseRun, plan: BlockPlan, values: NDArray[np.float32]) -> None:
    """Write the weighted values of all rows, with a constant."""
    dataset, engine, folder = run.task.dataset, run.context.local_engine, run.context.scratch
    reader = BlockReader(dataset, plan.features, engine, False, plan.blocks, folder, plan.turned_bytes)
    try:
        for done, block in enumerate(plan.blocks):
            run.context.progress(Progress("rows", done, len(plan.blocks), "blocks"))
            _write(reader.read(block)[0], values[block.samples], run.descent.fit_intercept)
    finally:
        reader.close()


def _write(rows: Rows, values: NDArray[np.float32], constant: float) -> None:
    counts = np.diff(rows.indptr)
    for some in slabs(len(values), _ROWS):
        own, entries = values[some], slice(*rows.indptr[[some.start, some.start + len(values[some])]])
        own[np.repeat(np.arange(len(own)), counts[some]), rows.slots[entries]] = rows.values[entries]
        own[:, -1] = constant
        give_back_pages(own)
