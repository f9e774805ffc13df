"""MultiBoost^cw by column generation: rebuild the dual weights, price, certify, descend; and again.

Lin, Shen, van den Hengel and Suter, "Fast training of effective multi-class boosting using coordinate descent
optimization" (ACCV 2012), with three changes: a pass over the data returns a pool of learners for every
class, from which columns are generated in memory until the pool is used up; the dual gives a bound at no
further cost; and the descent solves each restricted master only as accurately as the violation of the pass
requires.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.solvers import loop
from bigmc.solvers.boosting.binning import BinnedSource, Bins
from bigmc.solvers.boosting.cluster_pricing import WorkerScan, columns_of, worker_ranges
from bigmc.solvers.boosting.cluster_tree_growth import WorkerGrower
from bigmc.solvers.boosting.memory_plan import BoostingPlan, plan_memory
from bigmc.solvers.boosting.options import BoostingOptions, CutKind
from bigmc.solvers.boosting.oracle import Oracle
from bigmc.solvers.boosting.predictions import BitResponses, Responses, RowResponses
from bigmc.solvers.boosting.pricing import CutOracle, LocalScan, Scan
from bigmc.solvers.boosting.restricted_master import Master
from bigmc.solvers.boosting.rounds import FULL, Rounds
from bigmc.solvers.boosting.state import Stages, State
from bigmc.solvers.boosting.tree_growth import Grower, TreeGrower, TreePlan
from bigmc.solvers.boosting.trees import TreeOracle
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.loop import RunContext
from bigmc.store import row_hash
from bigmc.store.block import dtype_in_memory
from bigmc.store.chosen_columns import AnyColumns, frequent_columns
from bigmc.store.dataset import Dataset
from bigmc.store.sample import holdout_keys


@dataclass(frozen=True)
class Solution:
    """Learners with their weights after every round, and the certificate of the last round.

    `stage` is the one to use: the last, or the one with the fewest errors on the samples held out.
    `thresholds`, of shape (n_learners, n_nodes), is the value of each node above which samples go above.
    `objective` is P of the last stage. Without an exact search the certificate is minus infinity, P,
    infinity. `history` has ``n_passes, n_iter, objective, lower, gap, sigma, n_learners, bytes_read`` of
    every round, and ``held_loss, held_error`` of the samples held out; the last, without an exact search,
    also has ``restricted_lower`` and ``restricted_gap``, the certificate over the learners that have weight.
    If training stopped because the answers of the learners fill the memory limit, `limit_for_more` is a limit
    in bytes with space for twice as many.
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
    options: BoostingOptions,
    memory_limit: int,
    context: RunContext,
    sample_weight: NDArray[np.float64] | None = None,
    block_bytes: int | None = None,
    bins: dict[int, Bins] | None = None,
) -> Solution:
    """Minimise ``||w||_1 + C / (sum v (K - 1)) sum v_i exp(-gamma_iy)`` over all learners of a family.

    Learners cut the stored values, before any scaling of rows and columns. The run may add `memory_limit`
    bytes to the process; with `block_bytes`, it streams blocks of at most this size even if everything
    would fit. `bins` has the edges of every block that a run on the same samples within the same limit found
    before, and is filled. The engine of `context` prices the columns: `cluster_pricing` and
    `cluster_tree_growth` describe the work on a cluster. A resumed run gives the bits of an uninterrupted one
    with the same memory limit. `MemoryLimitError` if the limit cannot work, `DataError` if the data cannot be
    used.
    """
    if dataset.n_classes < 2:
        raise DataError("there is only one class", "train on labels of at least two classes")
    if dataset.class_counts().sum() < max(dataset.n_samples, 1):
        raise DataError("some samples have no label", "train on labelled samples only")
    frequent = options.frequent_columns(dataset)
    columns = frequent_columns(dataset, options.min_frequency)
    plan = plan_memory(
        columns,
        left_out=dataset.n_features - columns.n_features,
        limit=memory_limit,
        tol=options.tol,
        depth=options.max_depth,
        cut_kind=options.cut_kind(dataset),
        block_bytes=block_bytes,
    )
    labels, weight = _labels_and_weights(dataset, options, sample_weight)
    run = _Run(columns, options, plan, labels, weight, context, {} if bins is None else bins)
    master = Master(
        run.responses,
        dataset.n_classes,
        weight,
        options.C,
        plan.dtype,
        options.seed,
        options.learning_rate,
        options.loss,
        options.label_noise,
    )
    fingerprint = {
        **options.fingerprint(),
        "memory_limit": memory_limit,
        "n_samples": dataset.n_samples,
        "n_features": dataset.n_features,
        "n_classes": dataset.n_classes,
        "nnz": dataset.nnz,
        "weight_sum": float(weight.sum()),
    }
    saved = loop.load(context, fingerprint)
    with run.oracle() as oracle:
        rounds = Rounds(oracle, master, plan, run.local, options, frequent)
        certificate, stopped = loop.run(rounds, context, fingerprint, saved)
        rounds.bound_known()
        thresholds = rounds.thresholds()
    return _solution(rounds.state, certificate, thresholds, options, run.limit_for_more(stopped))


def _solution(
    state: State,
    certificate: Certificate,
    thresholds: NDArray[np.float64],
    options: BoostingOptions,
    limit_for_more: int | None,
) -> Solution:
    best = len(state.stages) - 1
    if options.validation_fraction > 0:
        best = int(np.argmin([entry["held_error"] for entry in state.history]))
    return Solution(
        stages=state.stages,
        stage=best,
        thresholds=thresholds,
        objective=certificate.upper,
        certificate=certificate,
        n_iter=len(state.stages) - 1,
        n_passes=state.n_passes,
        history=state.history,
        bytes_read=state.bytes_read,
        limit_for_more=limit_for_more,
    )


def _labels_and_weights(
    dataset: Dataset, options: BoostingOptions, sample_weight: NDArray[np.float64] | None
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the class of each sample, and its weight: -1 for those held out."""
    labels = dataset.labels()
    weight = np.ones(dataset.n_samples)
    if sample_weight is not None:
        # Only ratios count. A power of two changes no bit, and keeps huge and tiny weights in range.
        weight = np.ldexp(sample_weight, -int(np.frexp(np.max(sample_weight))[1]))
    if options.validation_fraction > 0:
        weight[held_out(holdout_keys(dataset), options.validation_fraction, options.seed)] = -1.0
    if len(np.unique(labels[weight > 0])) < 2:
        raise DataError("the samples to train on have one class only", "hold out fewer samples")
    return labels, weight


def held_out(keys: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Return which samples are held out: by a hash of their ids, or groups, independent of their order."""
    start = (seed * row_hash.GAMMA + 0x632BE59BD9B4E019) % 2**64
    hashes = row_hash.mix(keys.astype(np.uint64) * np.uint64(row_hash.GAMMA) + np.uint64(start))
    return np.asarray(hashes < np.uint64(fraction * 2.0**64))


class _Run:
    """One run: from where its columns are read, and its answers."""

    def __init__(
        self,
        dataset: AnyColumns,
        options: BoostingOptions,
        plan: BoostingPlan,
        labels: NDArray[np.int32],
        weight: NDArray[np.float64],
        context: RunContext,
        bins: dict[int, Bins],
    ) -> None:
        self._bins = bins
        self._dataset, self._options, self._plan, self._context = dataset, options, plan, context
        self.local = context.local_engine.at_most(plan.n_threads)
        self._counted = weight > 0
        self._cut_kind = options.cut_kind(dataset)
        kind = RowResponses if self._cut_kind is CutKind.RAY else BitResponses
        self.responses: Responses = kind(labels, dataset.n_classes, plan.memory.free)

    def limit_for_more(self, stopped: str) -> int | None:
        """Return a limit with space for twice the answers, if there were too many."""
        return self._plan.limit_for(2 * self.responses.nbytes) if stopped == FULL else None

    @contextmanager
    def oracle(self) -> Iterator[Oracle]:
        """Yield the search over the columns, which reads them in this process or on the engine's workers."""
        plan, options, dataset = self._plan, self._options, self._dataset
        blocks, max_bins = plan.residency, options.max_bins
        engine, trees = self._context.engine, options.grows_trees
        n_threads = min(engine.n_threads, plan.n_threads)
        how = TreePlan(options.max_depth, plan.histogram_bytes, plan.table_bytes, n_threads)
        if engine.shares_memory:
            dtype = dtype_in_memory(dataset, dataset.nnz, plan.memory.free)
            source = BinnedSource(
                dataset, plan.ranges, blocks, max_bins, self._counted, self.local, dtype, self._bins
            )
            n = dataset.n_samples
            if trees:
                yield self._tree_oracle(TreeGrower(source, n, how, self.local))
            else:
                yield self._cut_oracle(LocalScan(source, n, self._cut_kind, self.local))
            return
        workers = engine.at_most(1 if trees else plan.parts_at_once)
        ranges = plan.ranges if trees else worker_ranges(dataset, plan.ranges, workers.n_workers)
        scratch = self._context.scratch
        with columns_of(dataset, ranges, blocks, max_bins, self._counted, self._cut_kind, scratch) as columns:
            if trees:
                yield self._tree_oracle(WorkerGrower(columns, how, workers))
            else:
                yield self._cut_oracle(WorkerScan(columns, workers))

    def _cut_oracle(self, scan: Scan) -> Oracle:
        return CutOracle(scan, self.responses, self._dataset.n_classes, self.local)

    def _tree_oracle(self, grower: Grower) -> Oracle:
        depth = self._options.max_depth
        return TreeOracle(grower, self.responses, self._dataset.n_classes, depth, self.local)
