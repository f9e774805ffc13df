"""Newton steps over the features that have weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.rows import count_rows, fill_rows, active_groups, gradient_rows, hessian_rows, losses_along, move_rows
from bigmc.solvers.columns import Columns
from bigmc.solvers.problem import Problem

import time
_PART_ROWS = 16384
_PARTS = 0.5 ** np.arange(6.0)
STAT = {"build": 0.0, "grad": 0.0, "cg": 0.0, "ls": 0.0, "n_cg": 0, "n": 0, "nnz": 0}


class Support:
    """Entries of the features with weights, in row order."""

    def __init__(self, problem: Problem, held: list[Columns], chosen: list[NDArray[np.int64]]) -> None:
        t0 = time.perf_counter()
        self.problem = problem
        n = problem.n_samples
        base = held[0].base
        counts = np.zeros(n + 1, np.int64)
        def count(s: int) -> None:
            for columns, used in zip(held, chosen):
                count_rows(columns.positions[used], columns.indptr[s], columns.indices, counts[base[s] + 1 : base[s + 1] + 1])
        for _ in problem.engine.map(count, range(len(base) - 1)):
            pass
        self.indptr = np.cumsum(counts)
        nnz = int(self.indptr[-1])
        self.slots = np.empty(nnz, np.int32)
        self.values = np.empty(nnz, held[0].data.dtype)
        free = self.indptr[:-1].copy()
        def fill(s: int) -> None:
            first = 0
            for columns, used in zip(held, chosen):
                fill_rows(columns.positions[used], first, columns.indptr[s], columns.indices, columns.data, free[base[s] : base[s + 1]], self.slots, self.values)
                first += len(used)
        for _ in problem.engine.map(fill, range(len(base) - 1)):
            pass
        self.size = sum(len(c) for c in chosen)
        self.scale = np.concatenate([problem.scale_of(c.features[u]) for c, u in zip(held, chosen)])[:, None]
        self.parts = [(i, min(i + _PART_ROWS, n)) for i in range(0, n, _PART_ROWS)]
        STAT["build"] += time.perf_counter() - t0
        STAT["nnz"] += nnz

    def gradient(self):
        p = self.problem
        out = np.zeros((self.size, p.width)); cur = np.zeros((self.size, p.width))
        self.active = np.empty(p.n_samples, np.uint64)
        def work(part):
            active_groups(*part, p.scores, p.labels, self.active)
            a = np.zeros((self.size, p.width), p.scores.dtype); b = np.zeros_like(a)
            gradient_rows(*part, self.indptr, self.slots, self.values, p.scores, p.labels, p.row_scale, p.gain, a, b)
            return a, b
        for _, (a, b) in p.engine.map(work, self.parts):
            out += a; cur += b
        return p.two_over_n * self.scale * out, p.two_over_n * self.scale**2 * cur

    def product(self, direction):
        p = self.problem
        d = (self.scale * direction).astype(p.scores.dtype)
        out = np.zeros((self.size, p.width))
        def work(part):
            a = np.zeros((self.size, p.width), p.scores.dtype)
            hessian_rows(*part, self.indptr, self.slots, self.values, p.scores, p.labels, p.row_scale, p.gain, self.active, d, a)
            return a
        for _, a in p.engine.map(work, self.parts):
            out += a
        return p.two_over_n * self.scale * out

    def losses(self, direction):
        p = self.problem
        d = (self.scale * direction).astype(p.scores.dtype)
        out = np.zeros(len(_PARTS))
        def work(part):
            a = np.zeros(len(_PARTS))
            losses_along(*part, self.indptr, self.slots, self.values, p.scores, p.labels, p.row_scale, p.gain, d, _PARTS, a)
            return a
        for _, a in p.engine.map(work, self.parts):
            out += a
        return 0.5 * p.two_over_n * out

    def move(self, direction, part):
        p = self.problem
        d = (self.scale * direction).astype(p.scores.dtype)
        t = p.scores.dtype.type(part)
        def work(rows):
            move_rows(*rows, self.indptr, self.slots, self.values, p.scores, p.row_scale, d, t)
        for _ in p.engine.map(work, self.parts):
            pass


def newton_step(support: Support, rows: NDArray[np.float64], most: int, forcing: float) -> bool:
    p = support.problem
    alpha = p.alpha
    t0 = time.perf_counter()
    G, curv = support.gradient()
    t1 = time.perf_counter(); STAT["grad"] += t1 - t0
    norm = np.sqrt((rows**2).sum(1, keepdims=True))
    unit = rows / norm
    g = G + alpha * unit
    g[:, p.n_classes:] = 0
    bend = alpha / norm
    precondition = 1.0 / (curv + bend + 1e-12)
    d = np.zeros_like(g)
    r = -g
    z = precondition * r
    q = z.copy()
    rz = float((r * z).sum())
    stop = forcing**2 * rz
    for k in range(most):
        Hq = support.product(q) + bend * (q - unit * (unit * q).sum(1, keepdims=True))
        Hq[:, p.n_classes:] = 0
        curve = float((q * Hq).sum())
        if curve <= 0:
            break
        step = rz / curve
        d += step * q
        r -= step * Hq
        z = precondition * r
        new = float((r * z).sum())
        if new <= stop:
            break
        q = z + (new / rz) * q
        rz = new
    STAT["n_cg"] += k + 1; STAT["n"] += 1
    t2 = time.perf_counter(); STAT["cg"] += t2 - t1
    crossing = ((rows + d) * rows).sum(1) <= 0
    d[crossing] = -rows[crossing]
    changes = support.losses(d)
    after = np.array([np.sqrt(((rows + t * d) ** 2).sum(1)).sum() for t in _PARTS])
    total = changes + alpha * (after - norm.sum())
    slope = float((g * d).sum())
    best = int(np.argmin(total))
    ok = total[best] < 0
    if ok:
        support.move(d, _PARTS[best])
        rows += _PARTS[best] * d
        rows[crossing & (_PARTS[best] == 1.0)] = 0
    STAT["ls"] += time.perf_counter() - t2
    STAT.setdefault("log", []).append((k + 1, int(crossing.sum()), float(_PARTS[best]), float(total[best]), slope, float(np.sqrt((g**2).sum(1)).max() / alpha)))
    return ok
