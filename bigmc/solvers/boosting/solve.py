"""MultiBoost^cw by column generation: rebuild the dual weights, price, certify, descend; and again.

Lin, Shen, van den Hengel and Suter, "Fast training of effective multi-class boosting using coordinate
descent optimization" (ACCV 2012), with three changes: a pass over the data brings a pool of learners for
every class, from which columns are generated in memory until the pass is used up; the dual gives a bound
at no further cost; and the descent solves each restricted master in proportion to what the pass found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import BigmcError, DataError
from bigmc.progress import ProgressCallback, silent
from bigmc.solvers.boosting.binning import BinnedSource
from bigmc.solvers.boosting.cluster_pricing import WorkerScan, columns_of, cut_ranges
from bigmc.solvers.boosting.cluster_tree_growth import TreePlan, WorkerGrower
from bigmc.solvers.boosting.memory_plan import BoostingPlan, plan_memory
from bigmc.solvers.boosting.predictions import BitResponses, Responses, RowResponses
from bigmc.solvers.boosting.pricing import CutOracle, LocalScan, Oracle
from bigmc.solvers.boosting.restricted_master import Master
from bigmc.solvers.boosting.rounds import Rounds, Stop
from bigmc.solvers.boosting.state import Stages, State
from bigmc.solvers.boosting.tree_growth import TreeGrower
from bigmc.solvers.boosting.trees import TreeOracle
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.store import row_hash
from bigmc.store.dataset import Dataset

FAMILIES = ("auto", "stump", "ray")
LEARNERS = ("class", "shared")
#: Deepest trees.
MAX_DEPTH = 4
#: Share of entries below which stumps give way to rays.
_SPARSE = 0.1


@dataclass(frozen=True)
class Solution:
    """Learners with their weights, and the proof of how good they are.

    Attributes
    ----------
    stages : Stages
        The weights after every round.
    stage : int
        The one to use: the last, or the one with the fewest errors on the samples held out.
    thresholds : float64 array of shape (n_learners, n_nodes)
        Where each node cuts the values: above if larger.
    objective : float
        P of the last stage.
    certificate : Certificate
        Of the last stage. Without an exact search nothing is known: minus infinity, P, infinity.
    n_iter, n_passes, bytes_read : int
        Rounds, passes over the data, and decoded bytes read from the shards.
    history : list of dict
        ``n_passes, n_iter, objective, lower, gap, sigma, n_learners, bytes_read`` at every round, and
        ``held_loss, held_error`` of the samples held out; without an exact search ``restricted_lower`` and
        ``restricted_gap``, the certificate over the learners that have weight at that round.
    limit_for_more : int or None
        If training ended because the answers of the learners fill the memory limit: a limit in bytes with
        which there is space for twice as many.
    """

    stages: Stages
    stage: int
    thresholds: NDArray[np.float64]
    objective: float
    certificate: Certificate
    n_iter: int
    n_passes: int
    history: list[dict[str, float]]
    bytes_read: int
    limit_for_more: int | None = None


def solve(
    dataset: Dataset,
    *,
    C: float,
    memory_limit: int,
    n_rounds: int = 100,
    max_depth: int = 1,
    family: str = "auto",
    learners: str = "class",
    pool: int = 40,
    max_sweeps: int = 3,
    learning_rate: float = 1.0,
    inner_rounds: int = 30,
    max_bins: int = 255,
    tol: float = 1e-3,
    validation_fraction: float = 0.0,
    patience: int = 10,
    time_limit: float | None = None,
    seed: int = 0,
    sample_weight: NDArray[np.float64] | None = None,
    engine: Engine | None = None,
    checkpoint: Checkpoint | None = None,
    progress: ProgressCallback = silent,
    block_bytes: int | None = None,
    scratch: Path | None = None,
) -> Solution:
    """Minimise ``||w||_1 + C / (sum v (K - 1)) sum v_i exp(-gamma_iy)`` over all learners of a family.

    Parameters
    ----------
    dataset : Dataset
        Labelled samples of at least two classes. Learners cut the stored values, before any scaling of
        rows and columns.
    C : float
        Weight of the loss, positive.
    memory_limit : int
        Bytes the run may add to the process.
    n_rounds : int
        Rounds of column generation at most.
    max_depth : int
        Levels of the learners, 1 to `MAX_DEPTH`; from 2 on they are found greedily and nothing is certified.
    family : {"auto", "stump", "ray"}
        Learners of one cut: +1 and -1 on its sides, or 1 on one side and 0 on that of the value 0; auto takes
        rays where fewer than a tenth of all values are stored and `max_depth` is 1.
    learners : {"class", "shared"}
        Whether each class takes the learners found for it, or all take those found for any: as in MultiBoost
        (Shen and Hao, "A direct formulation for totally-corrective multi-class boosting", CVPR 2011), with
        which the paper compares. The problem and its optimum are the same.
    pool : int
        Learners a pass brings, of each class or shared; 1 is the algorithm of the paper.
    max_sweeps : int
        Sweeps over a class between two visits of the pool (tau_max); 1 is the stage-wise variant.
    learning_rate : float
        Part of the way to its best value that a visit moves a weight, above 0 and at most 1.
    inner_rounds : int
        Visits of the pool between two passes at most.
    max_bins : int
        Bins of a column at most; columns with no more different values lose no cut.
    tol : float
        Relative gap between P and the lower bound to reach; without an exact search, the largest violation of
        the learners found in a round with which it ends.
    validation_fraction : float
        Share of the samples to hold out, chosen by a hash of their ids.
    patience : int
        Rounds without fewer errors on those samples after which it ends.
    time_limit : float, optional
        Seconds after which no round is begun.
    seed : int
        Of the order of visits and of the samples held out.
    sample_weight : float64 array of shape (n_samples,), optional
    engine : Engine, optional
        Prices the columns; `cluster_pricing` and `cluster_tree_growth` say what a
        cluster's workers do. Any engine and any number of workers give the same bits.
    checkpoint : Checkpoint, optional
        Where the state is saved after every round, and read from at the start; going on from there gives
        the same bits as an uninterrupted run with the same memory limit.
    progress : callable
        Called with a `Progress` at every round.
    block_bytes : int, optional
        Stream blocks of at most this many bytes, whether or not everything would fit.
    scratch : Path, optional
        Folder for what workers that share no memory read; by default the system's for temporary files.

    Raises
    ------
    MemoryLimitError
        If the limit cannot work.
    BigmcError
        If a parameter cannot be used.
    """
    _check(dataset, C, tol, max_depth, family, learners)
    engine = engine or ThreadEngine()
    sparse = dataset.nnz < _SPARSE * dataset.n_samples * dataset.n_features
    rays = max_depth == 1 and (family == "ray" or (family == "auto" and sparse))
    plan = plan_memory(
        dataset, limit=memory_limit, tol=tol, depth=max_depth, rays=rays, block_bytes=block_bytes
    )
    local = (engine if engine.shares_memory else ThreadEngine()).at_most(plan.n_threads)
    labels = dataset.labels()
    if labels.min(initial=0) < 0 or len(labels) == 0:
        raise DataError("some samples have no label", "train on labelled samples only")
    weight = np.ones(dataset.n_samples) if sample_weight is None else np.array(sample_weight, np.float64)
    if validation_fraction > 0:
        weight[held_out(dataset.row_ids(), validation_fraction, seed)] = -1.0
    if len(np.unique(labels[weight > 0])) < 2:
        raise DataError("the samples to train on have one class only", "hold out fewer samples")
    responses = (RowResponses if rays else BitResponses)(labels, dataset.n_classes, plan.memory.free)
    master = Master(responses, dataset.n_classes, weight, C, plan.dtype, seed, learning_rate)
    run = {
        "C": C, "max_depth": max_depth, "family": family, "learners": learners, "pool": pool,
        "max_sweeps": max_sweeps, "learning_rate": learning_rate, "inner_rounds": inner_rounds,
        "max_bins": max_bins, "validation_fraction": validation_fraction, "patience": patience,
        "seed": seed, "memory_limit": memory_limit, "n_samples": dataset.n_samples,
        "n_features": dataset.n_features, "n_classes": dataset.n_classes, "nnz": dataset.nnz,
        "weight_sum": float(weight.sum()),
    }  # fmt: skip
    stop = Stop(n_rounds, tol, patience, time_limit)
    with _searching(
        dataset, plan, responses, weight > 0, rays, max_depth, max_bins, engine, local, scratch
    ) as oracle:
        rounds = Rounds(oracle, master, plan, local, max_depth, learners == "shared")
        if checkpoint is not None:
            rounds.resume(State.load(checkpoint, run, max_depth))

        def save() -> None:
            if checkpoint is not None:
                rounds.state.save(checkpoint, run)

        certificate = rounds.run(stop, pool, inner_rounds, max_sweeps, save, progress)
        thresholds = rounds.thresholds()
        in_use = responses.nbytes if rounds.memory_is_full else 0
    state = rounds.state
    best = len(state.stages) - 1
    if validation_fraction > 0:
        best = int(np.argmin([entry["held_error"] for entry in state.history]))
    return Solution(
        state.stages, best, thresholds, certificate.upper, certificate, len(state.stages) - 1,
        state.n_passes, state.history, state.bytes_read, plan.limit_for(2 * in_use) if in_use else None,
    )  # fmt: skip


def held_out(row_ids: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Return which samples are held out: by a hash of their ids, whatever their order."""
    start = (seed * row_hash.GAMMA + 0x632BE59BD9B4E019) % 2**64
    hashes = row_hash.mix(row_ids.astype(np.uint64) * np.uint64(row_hash.GAMMA) + np.uint64(start))
    return np.asarray(hashes < np.uint64(fraction * 2.0**64))


def _check(dataset: Dataset, C: float, tol: float, max_depth: int, family: str, learners: str) -> None:
    if dataset.n_classes < 2:
        raise DataError("there is only one class", "train on labels of at least two classes")
    for name, value in (("C", C), ("tol", tol)):
        if not (math.isfinite(value) and value > 0):
            raise BigmcError(f"{name} is {value}", "give a positive number")
    if not 1 <= max_depth <= MAX_DEPTH:
        raise BigmcError(f"max_depth is {max_depth}", f"give a number from 1 to {MAX_DEPTH}")
    if family not in FAMILIES:
        raise BigmcError(f"no family of learners is called {family!r}", f"use one of {', '.join(FAMILIES)}")
    if learners not in LEARNERS:
        raise BigmcError(f"learners is {learners!r}", f"use one of {', '.join(LEARNERS)}")
    if family == "ray" and max_depth > 1:
        raise BigmcError("rays have one cut", "give max_depth=1, or another family")


@contextmanager
def _searching(
    dataset: Dataset,
    plan: BoostingPlan,
    responses: Responses,
    counted: NDArray[np.bool_],
    rays: bool,
    max_depth: int,
    max_bins: int,
    engine: Engine,
    local: Engine,
    scratch: Path | None,
) -> Iterator[Oracle]:
    """Yield the search over the columns, which reads them in this process or on the engine's workers."""
    n_classes, keep, trees = dataset.n_classes, plan.keep_blocks, max_depth > 1
    room, n_threads = plan.histogram_bytes, min(engine.n_threads, plan.n_threads)
    if not engine.shares_memory:
        workers = engine.at_most(1 if trees else plan.parts_at_once)
        ranges = plan.ranges if trees else cut_ranges(dataset, plan.ranges, workers.n_workers)
        with columns_of(dataset, ranges, keep, max_bins, counted, rays, scratch) as columns:
            if trees:
                grower = WorkerGrower(columns, TreePlan(max_depth, room, n_threads), workers)
                yield TreeOracle(grower, responses, n_classes, max_depth, local)
            else:
                yield CutOracle(WorkerScan(columns, workers), responses, n_classes, local)
        return
    source = BinnedSource(dataset, plan.ranges, keep, max_bins, counted, local)
    if trees:
        own = TreeGrower(source, dataset.n_samples, max_depth, room, local)
        yield TreeOracle(own, responses, n_classes, max_depth, local)
    else:
        yield CutOracle(LocalScan(source, dataset.n_samples, rays, local), responses, n_classes, local)
