"""The working sets of constraints and components, and their linear program."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from bigmc.solvers.minimax.expectations import Expectations
from bigmc.solvers.minimax.linear_program import ENTRY_BYTES, Basis, solve_master
from bigmc.solvers.minimax.rows import WorkingRows

#: Part of the largest mass below which a level of the dual is rounding.
_LEVEL = 1e-7


class Restricted(NamedTuple):
    """Optimum over the working sets.

    `coef`, of shape (n_psi, n_classes), is μ, zero outside the working set; `dual`, of shape (n_rows,
    n_classes), is the distribution of α over rows and classes.
    """

    coef: NDArray[np.float64]
    nu: float
    dual: NDArray[np.float64]


class WorkingSets:
    """Constraints I and components J of the restricted master (14).

    A constraint has a sample, numbered as in `WorkingRows`, and a label subset in `masks`, of shape
    (n_constraints, ceil(n_classes / 8)). A component of μ is ``feature * n_classes + class``, in the
    order of addition. The next solution starts from `basis`.
    """

    def __init__(self, n_classes: int) -> None:
        self._n_classes = n_classes
        self.samples = np.empty(0, np.int64)
        self.masks = np.empty((0, -(-n_classes // 8)), np.uint8)
        self.components = np.empty(0, np.int64)
        self.basis: Basis | None = None

    def __len__(self) -> int:
        return len(self.samples)

    def add_constraints(self, samples: NDArray[np.int64], masks: NDArray[np.uint8]) -> int:
        """Add the constraints that are new; return their number."""
        known = set(zip(self.samples.tolist(), map(bytes, self.masks), strict=True))
        new = [
            k
            for k, key in enumerate(zip(samples.tolist(), map(bytes, masks), strict=True))
            if key not in known
        ]
        self.samples = np.concatenate([self.samples, samples[new]])
        self.masks = np.concatenate([self.masks, masks[new]])
        return len(new)

    def add_components(self, components: NDArray[np.int64]) -> int:
        """Add the components that are new; return their number."""
        new = components[~np.isin(components, self.components)]
        self.components = np.concatenate([self.components, new])
        return len(new)

    def seed_constraints(self, rows: WorkingRows, dual: NDArray[np.float64]) -> None:
        """Add the constraints on which a distribution over the rows has its mass.

        The numbers of a row, sorted, are exactly a sum of multiples of nested label subsets.
        """
        order = np.argsort(-dual, axis=1, kind="stable")
        levels = np.take_along_axis(dual, order, axis=1)
        drops = levels - np.pad(levels[:, 1:], ((0, 0), (0, 1)))
        row, size = np.nonzero(drops > _LEVEL * dual.max(initial=0.0))
        member = np.zeros((len(row), self._n_classes), np.uint8)
        for k, (r, s) in enumerate(zip(row.tolist(), size.tolist(), strict=True)):
            member[k, order[r, : s + 1]] = 1
        self.add_constraints(rows.samples[row], np.packbits(member, axis=1, bitorder="little"))

    def share(self) -> float:
        """Return the mean share of the classes in a label subset."""
        return float(self._members().mean()) if len(self) else 1.0

    def nbytes(self) -> int:
        """Return the bytes of the linear program."""
        return int(ENTRY_BYTES * self.share() * len(self) * len(self.components))

    def solve(
        self,
        rows: WorkingRows,
        expectations: Expectations,
        lam: NDArray[np.float64],
        tol: float,
        seconds: float,
    ) -> Restricted | None:
        """Solve the restricted master, with a feasibility tolerance; None if the time was over.

        `rows` has the samples of all constraints; `lam` has the shape (n_psi, n_classes).
        """
        slots = np.searchsorted(rows.samples, self.samples)
        member = self._members()
        weight = member / member.sum(axis=1, keepdims=True)
        matrix = self._matrix(rows.vectors(slots), weight)
        tau, slack = expectations.tau.ravel()[self.components], lam.ravel()[self.components]
        cost = 1.0 / member.sum(axis=1) - 1.0
        solution = solve_master(matrix, cost, tau - slack, tau + slack, self.basis, seconds=seconds, tol=tol)
        if solution is None:
            return None
        self.basis = solution.basis
        coef = np.zeros(expectations.tau.size)
        coef[self.components] = solution.mu
        alpha = np.maximum(solution.alpha, 0.0)
        dual = np.zeros((len(rows), self._n_classes))
        np.add.at(dual, slots, (alpha / alpha.sum())[:, np.newaxis] * weight)
        return Restricted(coef.reshape(expectations.tau.shape), solution.nu, dual)

    def _members(self) -> NDArray[np.uint8]:
        return np.unpackbits(self.masks, axis=1, bitorder="little")[:, : self._n_classes]

    def _matrix(self, psi: Any, weight: NDArray[np.float64]) -> scipy.sparse.csc_array:
        """Return Fᵀ: an entry is the value of a feature over the size of a subset that has the class."""
        feature, label = np.divmod(self.components, self._n_classes)
        by_class = np.argsort(label, kind="stable")
        blocks = []
        for c in range(self._n_classes):
            columns = feature[by_class[label[by_class] == c]]
            block = scipy.sparse.csr_array(psi[:, columns])
            blocks.append(scipy.sparse.diags_array(weight[:, c]) @ block)
        matrix = scipy.sparse.hstack(blocks, format="csc")[:, np.argsort(by_class)]
        matrix = scipy.sparse.csr_array(matrix)
        matrix.eliminate_zeros()
        matrix.sort_indices()
        return scipy.sparse.csc_array(matrix.T)
