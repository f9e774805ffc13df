"""Passes over the columns of the candidates instead of the shards, where no other features occur."""

from __future__ import annotations

from collections.abc import Sequence

from bigmc.solvers.sparse.chunks.feasible_dual import MovedSamples
from bigmc.solvers.sparse.chunks.pass_sums import PassRequest, PassSums
from bigmc.solvers.sparse.scratch.spill import Piece, Spill
from bigmc.solvers.sparse.state import Evaluated


def column_sums(
    spill: Spill, request: PassRequest, point: Evaluated, moved: Sequence[MovedSamples]
) -> PassSums:
    """Add up the losses of all samples; one reading of the columns.

    Parameters
    ----------
    spill : Spill
        Its features are all that occur.
    request : PassRequest
        Of no features.
    point : Evaluated
        Weights of the samples.
    moved : sequence of MovedSamples
        Other weights of some samples.
    """
    sums, task = PassSums.zeros(request), request.task
    taken = frozenset[Piece]().union(*(own.pieces for own in moved))
    parts = [(point.coef, point.intercept, frozenset(spill.pieces) - taken)]
    for coef, intercept, own in [*parts, *((m.coef, m.intercept, m.pieces) for m in moved)]:
        for number in range(spill.n_chunks):
            pieces = [piece for piece in spill.pieces_of_chunk(number) if piece in own]
            if pieces and not (chunk := spill.read(pieces)).samples.weightless:
                problem = task.problem(chunk)
                problem.rebuild_scores(coef, intercept, chunk.held)
                sums.add_losses(problem, request.scales)
    return sums
