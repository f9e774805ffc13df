"""The boosted learner beside others: test errors, solver times, passes over the data.

    python bench/boosting.py errors pendigits satimage letter      test error and CPU seconds, 5 seeds
    python bench/boosting.py figures vowel pendigits               error along the iterations (figures 1, 2)
    python bench/boosting.py solver pendigits                      time of FCD and of L-BFGS-B (figure 6)
    python bench/boosting.py passes vowel pendigits satimage       passes to 5 % above the optimum
    python bench/boosting.py width                                 cost of a search against hashed columns

One JSON line a result. Figures of Lin, Shen, van den Hengel and Suter (ACCV 2012); 75/25 splits, as there.
LightGBM and XGBoost are compared where they are installed. Run it with OMP_NUM_THREADS=1: every method
gets one thread.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
from data import keel
from sklearn.model_selection import train_test_split

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.solvers.boosting.binning import BinnedSource
from bigmc.solvers.boosting.options import CutKind
from bigmc.solvers.boosting.oracle import Duals
from bigmc.solvers.boosting.predictions import BitResponses, RowResponses
from bigmc.solvers.boosting.pricing import CutOracle, LocalScan
from bigmc.solvers.boosting.restricted_master import Master
from bigmc.store.block import Residency
from bigmc.store.dataset import Dataset

HERE = Path(__file__).parent
ENGINE = ThreadEngine(1)
#: The paper's tolerance of the coordinate descent.
TOLERANCE = 0.1


def load(name: str) -> tuple[Any, Any]:
    table = np.genfromtxt(keel(HERE / "data") / f"{name}.csv", delimiter=",", skip_header=1, dtype=str)
    return table[:, :-1].astype(float), np.unique(table[:, -1], return_inverse=True)[1]


def split(X: Any, y: Any, seed: int) -> Any:
    return train_test_split(X, y, test_size=0.25, random_state=seed, stratify=y)


def boost(**options: Any) -> Any:
    return bigmc.MultiBoostClassifier(engine=ENGINE, **options)


def methods(names: list[str] | None) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {
        "bigmc, its defaults": boost,
        "bigmc stumps, C=auto, 15 rounds": lambda: boost(C="auto", n_rounds=15, max_depth=1),
        "bigmc stumps, C=1e5, 15 rounds": lambda: boost(n_rounds=15, max_depth=1),
        "bigmc stumps, C=1e5, 150 rounds of one": lambda: boost(
            n_rounds=150, max_depth=1, pool=1, max_sweeps=2, inner_rounds=1, tol=1e-9
        ),
        "bigmc trees of 2, 60 rounds": lambda: boost(n_rounds=60, max_depth=2),
        "bigmc trees of 4, 60 rounds": lambda: boost(n_rounds=60, max_depth=4),
        "bigmc trees of 4, optimised, 20 rounds": lambda: boost(
            n_rounds=20, max_depth=4, max_sweeps=3, inner_rounds=30, learning_rate=1.0
        ),
    }
    if importlib.util.find_spec("xgboost"):
        from xgboost import XGBClassifier

        for k in (150, 500):
            found[f"XGBoost stumps {k}"] = lambda k=k: XGBClassifier(max_depth=1, n_estimators=k, n_jobs=1)
    if importlib.util.find_spec("lightgbm"):
        from lightgbm import LGBMClassifier

        for k in (150, 500):
            found[f"LightGBM stumps {k}"] = lambda k=k: LGBMClassifier(
                num_leaves=2, max_depth=1, n_estimators=k, n_jobs=1, verbose=-1
            )
        found["LightGBM default"] = lambda: LGBMClassifier(n_jobs=1, verbose=-1)
    return {name: found[name] for name in found if not names or any(part in name for part in names)}


def errors(sets: list[str], n_seeds: int, names: list[str] | None) -> None:
    for data in sets:
        X, y = load(data)
        for name, make in methods(names).items():
            figures = []
            for seed in range(n_seeds):
                train, test, y_train, y_test = split(X, y, seed)
                started = time.process_time()
                model = make().fit(train, y_train)
                seconds = time.process_time() - started
                wrong = np.mean(model.predict(test) != y_test)
                figures.append((100 * wrong, seconds, getattr(model, "C_", np.nan)))
            error, seconds, C = np.mean(figures, axis=0)
            tell(set=data, method=name, error=error, std=np.std(figures, axis=0)[0], cpu_seconds=seconds, C=C)


class Restricted:
    """Column generation with learners of each class's own, one at a time, and solvers of the master."""

    def __init__(self, X: Any, y: Any, C: float) -> None:
        self.dataset = Dataset.from_arrays(X, y)
        self.n_classes, n = self.dataset.n_classes, self.dataset.n_samples
        self.y, self.r = self.dataset.labels(), C / (n * (self.dataset.n_classes - 1))
        source = BinnedSource(
            self.dataset, self.dataset.plan(1 << 30), Residency.MEMORY, 255, np.ones(n, bool), ENGINE
        )
        self.responses = BitResponses(self.y, self.n_classes)
        self.search = CutOracle(
            LocalScan(source, n, CutKind.STUMP, ENGINE), self.responses, self.n_classes, ENGINE
        )
        self.master = Master(self.responses, self.n_classes, np.ones(n), C, np.dtype(np.float32), 0)
        self.columns: list[list[Any]] = [[] for _ in range(self.n_classes)]

    def add_columns(self) -> None:
        """Add the best learner of every class at the present dual weights."""
        found = self.search.price(Duals(self.master.u, self.master.r), 1)
        for k, (key, answer) in enumerate(zip(found.learners.keys(), found.answers, strict=True)):
            slot = self.responses.find(key)
            slot = self.responses.add(key, answer) if slot is None else slot
            h = np.where(np.unpackbits(answer.view(np.uint8), bitorder="little")[: len(self.y)], 1.0, -1.0)
            for c, sign in zip(found.classes[found.places == k], found.signs[found.places == k], strict=True):
                own = self.master.classes[c]
                here = np.flatnonzero((own.slots == slot) & (own.signs == sign))
                if len(here):
                    own.pooled[here] = True
                else:
                    own.add([slot], [sign])
                    self.columns[c].append(sign * h)

    def lbfgs(self, start: list[Any]) -> tuple[list[Any], float]:
        """Solve the restricted master with L-BFGS-B at its default accuracy."""
        matrices = [np.array(own) for own in self.columns]
        ends = np.cumsum([0] + [len(own) for own in matrices])
        rows = np.arange(len(self.y))

        def value(w: Any) -> tuple[float, Any]:
            F = np.array([w[ends[c] : ends[c + 1]] @ own for c, own in enumerate(matrices)])
            mu = self.r * np.exp(F - F[self.y, rows])
            mu[self.y, rows] = 0.0
            u = -mu
            u[self.y, rows] = mu.sum(axis=0)
            gradient = 1 - np.concatenate([own @ u[c] for c, own in enumerate(matrices)])
            return w.sum() + mu.sum(), gradient

        w = np.concatenate([np.pad(s, (0, len(m) - len(s))) for s, m in zip(start, matrices, strict=True)])
        bounds = [(0, None)] * len(w)
        found = scipy.optimize.minimize(value, w, jac=True, method="L-BFGS-B", bounds=bounds)
        return np.split(found.x, ends[1:-1]), float(found.fun)


def solver(sets: list[str], n_rounds: int, C: float, cycles: int, folder: Path) -> None:
    for data in sets:
        train, _, y_train, _ = split(*load(data), 0)
        problem = Restricted(train, y_train, C)
        problem.master.rebuild(ENGINE)
        weights = [np.empty(0)] * problem.n_classes
        spent, worst = {"FCD": 0.0, "L-BFGS-B": 0.0}, 0.0
        times: dict[str, list[float]] = {"FCD": [], "L-BFGS-B": []}
        objectives: dict[str, list[float]] = {"FCD": [], "L-BFGS-B": []}
        for k in range(1, n_rounds + 1):
            problem.add_columns()
            started = time.process_time()
            # As the paper orders it (algorithm 2): the new learners of all classes, then all that violate,
            # class after class, until none does. Joint steps, which are not the paper's, begin at 5 cycles.
            problem.master.improve(TOLERANCE, 1, 1, ENGINE)
            for _ in range(cycles // 4):
                problem.master.improve(TOLERANCE, 4, 2, ENGINE)
            point = problem.master.rebuild(ENGINE)
            taken = time.process_time() - started
            started = time.process_time()
            weights, value = problem.lbfgs(weights)
            if k > 1:  # the first call compiles
                spent["FCD"] += taken
                spent["L-BFGS-B"] += time.process_time() - started
            for name, reached in (("FCD", point.objective), ("L-BFGS-B", value)):
                times[name].append(spent[name] or np.nan)
                objectives[name].append(reached)
            worst = max(worst, point.objective / value - 1)
            if k in (1, 5, 10, 15, 25, 50, 75, 100) or k == n_rounds:
                tell(
                    set=data, round=k, fcd_seconds=spent["FCD"], lbfgs_seconds=spent["L-BFGS-B"],
                    ratio=spent["L-BFGS-B"] / spent["FCD"] if spent["FCD"] else np.nan,
                    fcd_objective=point.objective, lbfgs_objective=value,
                    excess=point.objective / value - 1, largest_excess=worst,
                )  # fmt: skip

        draw(folder / f"boosting-solver-{data}.png", times, "solver, CPU seconds so far", data, log=True)
        draw(folder / f"boosting-objective-{data}.png", objectives, "objective", data, log=True)


def draw(to: Path, curves: dict[str, list[float]], label: str, title: str, log: bool = False) -> None:
    """Draw curves along the iterations, if matplotlib is installed."""
    if not importlib.util.find_spec("matplotlib"):
        print(f"{to.name} is not drawn: install matplotlib", file=sys.stderr)
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for name, curve in curves.items():
        axes.plot(range(1, len(curve) + 1), curve, label=name)
    axes.set(xlabel="iterations", ylabel=label, title=title, yscale="log" if log else "linear")
    axes.legend()
    to.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(to, dpi=150)


def passes(sets: list[str], C: float, most: int) -> None:
    for data in sets:
        train, _, y_train, _ = split(*load(data), 0)
        best = boost(C=C, n_rounds=60, max_depth=1, tol=1e-4, inner_rounds=100).fit(train, y_train)
        target = 1.05 * best.certificate_.lower
        for name, options in (
            ("pool of 40", {"n_rounds": 60}),
            ("one per class", {"n_rounds": most, "pool": 1, "max_sweeps": 2, "inner_rounds": 1}),
            ("one per class, solved", {"n_rounds": most, "pool": 1}),
        ):
            model = boost(C=C, max_depth=1, tol=1e-4, **options).fit(train, y_train)
            reached = [e["n_passes"] for e in model.history_ if e["objective"] <= target]
            tell(
                set=data, C=C, method=name, lower=best.certificate_.lower, gap=best.certificate_.gap,
                passes=min(reached) - 1 if reached else f"> {most}",
            )  # fmt: skip


def along(X: Any, y: Any, test: Any, y_test: Any, n_rounds: int, C: float) -> Iterator[tuple[str, Any, Any]]:
    """Yield method, test errors after every iteration, and training seconds."""
    from sklearn.ensemble import AdaBoostClassifier
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.tree import DecisionTreeClassifier

    one = {"n_rounds": n_rounds, "pool": 1, "inner_rounds": 1, "tol": 1e-12}
    for name, options in (
        ("CW (FCD-2)", {"C": C, "max_sweeps": 2, **one}),
        ("CW-1", {"C": 1e8, "max_sweeps": 1, **one}),
        ("CW, pool of 40", {"C": C, "n_rounds": 25}),
        ("MultiBoost (shared)", {"C": C, "learners": "shared", "max_sweeps": 3, **one, "inner_rounds": 5}),
    ):
        started = time.process_time()
        model = boost(max_depth=1, **options).fit(X, y)
        seconds = time.process_time() - started
        yield name, [np.mean(p != y_test) for p in model.staged_predict(test)], seconds
    started = time.process_time()
    stump = DecisionTreeClassifier(max_depth=1)
    samme = AdaBoostClassifier(stump, n_estimators=n_rounds, random_state=0).fit(X, y)
    seconds = time.process_time() - started
    yield "AdaBoost SAMME", [np.mean(p != y_test) for p in samme.staged_predict(test)], seconds
    started = time.process_time()
    rest = OneVsRestClassifier(AdaBoostClassifier(stump, n_estimators=n_rounds, random_state=0)).fit(X, y)
    seconds = time.process_time() - started
    staged = zip(*(e.staged_decision_function(test) for e in rest.estimators_), strict=False)
    yield "AdaBoost one-vs-rest", [np.mean(np.argmax(s, axis=0) != y_test) for s in staged], seconds


def figures(sets: list[str], n_rounds: int, C: float, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for data in sets:
        train, test, y_train, y_test = split(*load(data), 0)
        curves = {}
        for name, curve, seconds in along(train, y_train, test, y_test, n_rounds, C):
            curves[name] = [float(100 * e) for e in curve]
            at = {k: curves[name][min(k, len(curve)) - 1] for k in (1, 10, 25, 50, 100) if k <= n_rounds}
            tell(set=data, method=name, error_at=at, cpu_seconds=seconds)
        (folder / f"boosting-{data}.json").write_text(json.dumps(curves))
        draw(folder / f"boosting-{data}.png", curves, "test error, %", data)


def width(source: Path, bits: list[int], rounds: int) -> None:
    """Cost of a search against the number of hashed columns; the texts are package descriptions."""
    import tempfile

    for b in bits:
        with tempfile.TemporaryDirectory() as scratch:
            dataset = bigmc.ingest(
                source, Path(scratch) / "d.bigmc", text="text", label="section", ngrams=(1, 1), hash_bits=b,
                on_bad_row="quarantine", split={"train": 1.0}, names=False,
            )  # fmt: skip
            columns = BinnedSource(
                dataset, dataset.plan(1 << 28), True, 255, np.ones(dataset.n_samples, bool), ENGINE
            )
            responses = RowResponses(dataset.labels(), dataset.n_classes)
            scan = LocalScan(columns, dataset.n_samples, True, ENGINE)
            search = CutOracle(scan, responses, dataset.n_classes, ENGINE)
            master = Master(
                responses, dataset.n_classes, np.ones(dataset.n_samples), 1e5, np.dtype(np.float32), 0
            )
            master.rebuild(ENGINE)
            search.price(Duals(master.u, master.r), 40)
            seconds = []
            for _ in range(rounds):
                started = time.process_time()
                search.price(Duals(master.u, master.r), 40)
                seconds.append(time.process_time() - started)
            per = 1e9 * min(seconds) / dataset.nnz
            tell(columns=dataset.n_features, nnz=dataset.nnz, seconds=min(seconds), ns_per_nonzero=per)


def tell(**figures: Any) -> None:
    told = {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in figures.items()}
    print(json.dumps({k: v for k, v in told.items() if v == v}), flush=True)  # NaN is unlike itself


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("what", choices=("errors", "figures", "solver", "passes", "width"))
    parser.add_argument("sets", nargs="*", default=["pendigits"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--C", type=float, default=1e4)
    parser.add_argument("--cycles", type=int, default=12, help="most visits of all classes, of solver")
    parser.add_argument("--methods", nargs="+", help="parts of names of the methods of errors")
    parser.add_argument("--texts", type=Path, default=HERE / "data" / "packages.csv")
    parser.add_argument("--bits", type=int, nargs="+", default=[14, 16, 18, 20])
    parser.add_argument("--to", type=Path, default=HERE / "results")
    a = parser.parse_args()
    warnings.simplefilter("ignore")
    if a.what == "errors":
        errors(a.sets, a.seeds, a.methods)
    elif a.what == "figures":
        figures(a.sets, a.rounds, a.C, a.to)
    elif a.what == "solver":
        solver(a.sets, a.rounds, a.C, a.cycles, a.to)
    elif a.what == "passes":
        passes(a.sets, a.C, a.rounds)
    else:
        width(a.texts, a.bits, 5)


if __name__ == "__main__":
    main()
