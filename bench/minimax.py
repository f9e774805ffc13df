"""The minimax risk classifier beside the methods its paper compares it with, on the data that can be had.

    python bench/minimax.py digits satimage optdigits --methods ccg sub lp --seconds 120
    python bench/minimax.py fashion --methods ccg --tol 1e-2
    python bench/minimax.py digits --methods ccg mrcpy --fourier 96

One line of JSON for every data set and method: seconds (of the clock and of the processor), the bound
``upper`` of the worst-case error probability, for ccg the certified gap, and the error on the rows held out.
Features are standardised and turned into random Fourier features; 80 % of the rows train (Fashion-MNIST:
its own 60,000). As in the paper:

ccg   constraint and column generation (`bigmc.MinimaxRiskClassifier`)
lp    MRC-LP: the whole linear program (6) at once, by HiGHS
sub   MRC-SUB: subgradients of (3) with Nesterov's extrapolation (Tao et al., "The strength of Nesterov's
      extrapolation in the individual convergence of nonsmooth optimization", 2020), for a given time
mrcpy the authors' MRCpy 3.0.0, its solver ccg, in an interpreter of its own (``bench/peers.py mrcpy``). Its
      result is R of the working set (``restricted``), at most the optimum; ``upper`` is the bound at its μ
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import data
import numpy as np
import scipy.sparse
from peers import interpreter
from scipy.optimize import linprog
from sklearn.datasets import load_digits, load_iris

import bigmc
from bigmc.kernels.minimax import subset_masks, subset_values
from bigmc.store.feature_map import FeatureMap, Moments

HERE = Path(__file__).parent
#: Entries of the whole linear program beyond which it is not tried.
MOST_ENTRIES = 20_000_000


class Problem:
    """Features and labels to train and to test on, τ and λ."""

    def __init__(self, X: Any, y: Any, X_test: Any, y_test: Any, fourier: int, lambda0: float) -> None:
        moments = Moments.of(X)
        map = FeatureMap.fit(moments, fourier, None, 0)
        self.features, self.labels = map.transform(X), y
        self.test_features, self.test_labels = map.transform(X_test), y_test
        self.lambda0 = lambda0
        self.psi = np.column_stack([self.features, np.ones(len(y))]).astype(np.float64)
        self.n_classes = len(np.unique(y))
        hot = np.eye(self.n_classes)[np.unique(y, return_inverse=True)[1]]
        self.tau = self.psi.T @ hot / len(y)
        self.lam = lambda0 * np.sqrt(np.maximum((self.psi**2).T @ hot / len(y) - self.tau**2, 0))

    def error(self, mu: Any) -> float:
        """Return the error on the rows held out."""
        scores = self.test_features @ mu[:-1] + mu[-1]
        return float(np.mean(np.unique(self.labels)[scores.argmax(axis=1)] != self.test_labels))


def ccg(problem: Problem, tol: float, seconds: float) -> dict[str, float]:
    model = bigmc.MinimaxRiskClassifier(problem.lambda0, tol=tol, time_limit=seconds)
    model.fit(problem.features, problem.labels)
    mu = np.vstack([model.coef_.toarray().T, model.intercept_])
    return {
        "upper": model.certificate_.upper, "gap": model.certificate_.gap, "error": problem.error(mu),
        "n_iter": model.n_iter_, "nnz": int(np.count_nonzero(mu)),
    }  # fmt: skip


def sub(problem: Problem, tol: float, seconds: float) -> dict[str, float]:
    """Keep the best point of so many seconds; the objective is known at every step."""
    end = time.monotonic() + seconds
    mu = before = best = np.zeros_like(problem.tau)
    lowest, k = np.inf, 0
    values, phi = np.empty(len(problem.psi)), np.empty(1)
    mask = np.empty((1, -(-problem.n_classes // 8)), np.uint8)
    while time.monotonic() < end:
        ahead = mu + 2 / (k + 2) * (k + 1) / 2 * (1 - 2 / (k + 1)) * (mu - before) if k else mu
        scores = problem.psi @ ahead
        subset_values(scores, np.ones(1), values, phi)
        upper = 1 - np.vdot(problem.tau, ahead) + phi[0] + np.vdot(problem.lam, np.abs(ahead))
        if upper < lowest:
            lowest, best = upper, ahead
        worst = int(values.argmax())
        subset_masks(scores[worst : worst + 1], mask)
        member = np.unpackbits(mask[0], bitorder="little")[: problem.n_classes].astype(np.float64)
        slope = np.outer(problem.psi[worst], member / member.sum()) - problem.tau
        slope += problem.lam * np.sign(ahead)
        k += 1
        before, mu = mu, ahead - slope / k**1.5
    return {"upper": float(lowest), "error": problem.error(best), "n_iter": k}


def lp(problem: Problem, tol: float, seconds: float) -> dict[str, float]:
    n, d = problem.psi.shape
    subsets = np.array(
        [[(s >> c) & 1 for c in range(problem.n_classes)] for s in range(1, 2**problem.n_classes)]
    )
    if n * d * int(subsets.sum()) > MOST_ENTRIES:
        raise MemoryError(f"{n * len(subsets):,} rows are too many for the whole program")
    weights = scipy.sparse.csr_array(subsets / subsets.sum(axis=1, keepdims=True))
    rows = scipy.sparse.kron(weights, scipy.sparse.csr_array(problem.psi), format="csr")
    bounds = np.repeat(1 / subsets.sum(axis=1) - 1, n)
    ones = scipy.sparse.csr_array(np.ones((rows.shape[0], 1)))
    program = scipy.sparse.hstack([rows, -rows, -ones], format="csr")
    tau, lam = problem.tau.T.ravel(), problem.lam.T.ravel()
    found = linprog(
        np.concatenate([lam - tau, lam + tau, [1.0]]), A_ub=program, b_ub=bounds,
        bounds=[(0, None)] * (2 * len(tau)) + [(None, None)], method="highs",
        options={"time_limit": seconds},
    )  # fmt: skip
    if found.x is None:
        raise TimeoutError("the whole program was not solved in time")
    mu = (found.x[: len(tau)] - found.x[len(tau) : -1]).reshape(problem.n_classes, d).T
    return {"upper": float(found.fun), "error": problem.error(mu)}


def mrcpy(problem: Problem, tol: float, seconds: float) -> dict[str, float]:
    python = interpreter("mrcpy", HERE / "data")
    if not python.exists():
        raise RuntimeError("no interpreter: python bench/peers.py mrcpy")
    names = np.unique(problem.labels)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "features.npz"
        np.savez(
            file, features=problem.features, labels=np.searchsorted(names, problem.labels),
            lambda0=problem.lambda0,
        )  # fmt: skip
        command = [python, HERE / "minimax_mrcpy.py", file]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found = json.loads(done.stdout.splitlines()[-1])
    mu = np.array(found.pop("mu")).T
    mu = np.vstack([mu[1:], mu[:1]])  # its constant comes first
    values, phi = np.empty(len(problem.psi)), np.empty(1)
    subset_values(problem.psi @ mu, np.ones(1), values, phi)
    upper = 1 - np.vdot(problem.tau, mu) + phi[0] + np.vdot(problem.lam, np.abs(mu))
    return {**found, "upper": float(upper), "error": problem.error(mu)}


METHODS = {"ccg": ccg, "sub": sub, "lp": lp, "mrcpy": mrcpy}


def load(name: str, folder: Path, seed: int) -> tuple[Any, Any, Any, Any]:
    """Return features and labels to train and to test on."""
    if name == "fashion":
        files = data.fashion(folder)
        parts = []
        for part, count in (("train", 60_000), ("t10k", 10_000)):
            pixels = gzip.decompress((files / f"{part}-images-idx3-ubyte.gz").read_bytes())
            labels = gzip.decompress((files / f"{part}-labels-idx1-ubyte.gz").read_bytes())
            parts += [np.frombuffer(pixels, np.uint8, offset=16).reshape(count, 784)]
            parts += [np.frombuffer(labels, np.uint8, offset=8)]
        return tuple(parts)  # type: ignore[return-value]
    if name in ("digits", "iris"):
        X, y = (load_digits if name == "digits" else load_iris)(return_X_y=True)
    else:
        table = np.loadtxt(data.keel(folder) / f"{name}.csv", delimiter=",", skiprows=1, dtype=str)
        X, y = table[:, :-1].astype(np.float64), table[:, -1]
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = np.split(order, [int(0.8 * len(y))])
    return X[train], y[train], X[test], y[test]


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("sets", nargs="+", help="iris, digits, fashion, or a table of bench/data.py keel")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["ccg"])
    parser.add_argument(
        "--fourier", type=int, default=400, help="random Fourier features; 0: standardised only"
    )
    parser.add_argument("--lambda0", type=float, default=0.01)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--seconds", type=float, default=600.0, help="most seconds of a method")
    parser.add_argument("--repeats", type=int, default=1, help="random divisions of the rows")
    parser.add_argument("--data", type=Path, default=HERE / "data")
    options = parser.parse_args()
    small = load("iris", options.data, 0)  # compiles the kernels
    for method in set(options.methods) - {"mrcpy"}:
        METHODS[method](Problem(*small, 0, 0.01), 1e-2, 5.0)
    for name in options.sets:
        for seed in range(options.repeats):
            problem = Problem(*load(name, options.data, seed), options.fourier, options.lambda0)
            for method in options.methods:
                clock, processor = time.monotonic(), time.process_time()
                try:
                    found = METHODS[method](problem, options.tol, options.seconds)
                except (MemoryError, RuntimeError, TimeoutError, subprocess.TimeoutExpired) as error:
                    found = {"failed": str(error)}
                spent = {
                    "seconds": round(time.monotonic() - clock, 2),
                    "cpu_seconds": round(time.process_time() - processor, 2),
                }
                print(
                    json.dumps({"data": name, "seed": seed, "method": method, **spent, **found}), flush=True
                )


if __name__ == "__main__":
    main()
