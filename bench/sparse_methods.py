"""The methods of ``bench/sparse_race.py``; as a script, one method on one problem in a process of its own.

A method gets its data into the form it wants, starts the meter, and shows it weights until it is told to
stop or is done. The peers run in interpreters of their own, see ``bench/peers.py``; this file and what it
imports at the top work there too.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sparse_meter import Meter, accuracy
from sparse_problems import PROBLEMS, Problem, load


@dataclass(frozen=True)
class Run:
    """One method on one problem."""

    problem: Problem
    folder: Path
    alpha: float
    seed: int
    optimum: float | None
    time_limit: float

    def meter(self) -> Meter:
        """Return the meter; to be made when all is imported and no data are loaded."""
        return Meter(self.problem, self.folder, self.alpha, self.optimum, self.time_limit)

    def load(self, split: str) -> tuple[Any, Any, int]:
        return load(self.problem, self.folder, split)


class Enough(Exception):
    """The time is over, and the method knows no other end."""


def bigmc(run: Run, step: str = "line_search", streamed: bool = False, loss: str = "squared_hinge") -> Meter:
    """Ours, from disk; ends when its certificate says so. Streamed is within the memory of the problem."""
    from bigmc import SparseClassifier
    from bigmc.progress import Progress

    train, _ = run.problem.make(run.folder)
    # An easier problem compiles or loads the kernels and warms the disk cache.
    options = {"step": step, "loss": loss}
    if streamed:
        options["memory_limit"] = run.problem.memory
    SparseClassifier(10 * run.alpha, tol=1e-2, **options).fit(train)
    tol = 1e-3 if run.optimum is None else run.problem.tolerances[-1]
    learner = SparseClassifier(run.alpha, random_state=run.seed, tol=tol, max_passes=1_000_000, **options)
    meter, read_before = run.meter(), train.bytes_read

    def note(progress: Progress) -> None:
        facts = progress.facts
        if progress.stage != "train":
            return  # on a sample, whose objective is another
        meter.note(
            objective=facts["objective"], gap=facts["gap"], passes=facts["n_passes"],
            decoded_bytes=int(facts["bytes_read"]), bytes_read=train.bytes_read - read_before,
            nonzero_rows=int(facts["n_nonzero"]),
        )  # fmt: skip
        if meter.cpu_seconds > run.time_limit and facts["gap"] > tol:
            raise Enough

    meter.start()
    try:
        learner.fit_dataset(train, progress=note)
    except Enough:
        return meter
    claimed = learner.objective_
    facts = {"gap": learner.certificate_.gap, "passes": learner.n_passes_}
    facts["bytes_read"] = train.bytes_read - read_before
    meter.look(lambda: learner.coef_.T.toarray(), last=True, **facts)
    if loss == "squared_hinge" and not np.isclose(meter.trace[-1]["objective"], claimed, rtol=1e-5):
        raise AssertionError(f"the objective is {meter.trace[-1]['objective']}, not {claimed} as claimed")
    return meter


def lightning(run: Run, shrinking: bool, loss: str = "squared_hinge", multiclass: bool = True) -> Meter:
    """Minimises C Σ loss + alpha Σ ‖W_j‖: with C = 1 its alpha is n of ours."""
    from lightning.classification import CDClassifier

    meter = run.meter()
    X, y, _ = run.load("train")
    X = X.tocsc()
    epochs = 0

    def look(learner: Any) -> bool | None:
        nonlocal epochs
        epochs += 1
        # It goes by whether the answer is None.
        return meter.look(lambda: learner.coef_.T, passes=epochs - 1) or None

    to_tolerance = run.optimum is not None
    learner = CDClassifier(
        penalty="l1/l2", loss=loss, multiclass=multiclass, C=1.0, alpha=len(y) * run.alpha,
        shrinking=shrinking, random_state=run.seed, tol=1e-12 if to_tolerance else 1e-3,
        max_iter=1_000_000 if to_tolerance else 200, callback=look, n_calls=X.shape[1],
    )  # fmt: skip
    meter.start()
    learner.fit(X, y)
    meter.look(lambda: learner.coef_.T, last=True, passes=epochs)
    return meter


def proximal(run: Run, name: str) -> Meter:
    """One of the paper's comparison solvers, on the columns that have entries."""
    import sparse_proximal as solvers

    meter = run.meter()
    X, y, n_classes = run.load("train")
    used = np.flatnonzero(np.diff(X.tocsc().indptr))
    n_features, X = X.shape[1], X[:, used].tocsr()
    facts: dict[str, Any] = {}

    def steps() -> Iterator[tuple[Any, float]]:
        if name == "fobos":
            return solvers.fobos(X, y, n_classes, run.alpha, facts["first_step"], run.seed)
        loss = solvers.Loss(X, y, n_classes)
        if name == "sparsa":
            return solvers.sparsa(loss, run.alpha)
        return solvers.fista(loss, run.alpha, line_search=name == "fista")

    if name == "fobos":
        facts["first_step"] = solvers.best_first_step(X, y, n_classes, run.alpha, run.seed)

    def widened(W: Any) -> Any:
        wide = np.zeros((n_features, n_classes))
        wide[used] = W
        return wide

    meter.start()
    for W, passes in steps():
        if meter.look(partial(widened, W), passes=passes, **facts):
            break
    meter.look(partial(widened, W), last=True, passes=passes, **facts)
    return meter


def sgd(run: Run, passes: int) -> Meter:
    from sklearn.linear_model import SGDClassifier

    meter = run.meter()
    X, y, _ = run.load("train")
    learner = SGDClassifier(max_iter=passes, tol=None, alpha=1e-5, random_state=run.seed)
    meter.start()
    learner.fit(X, y)
    meter.stop()
    return _of_other_objective(run, meter, learner.coef_.T, learner.intercept_, passes=passes)


def liblinear(run: Run, solver: int) -> Meter:
    """LIBLINEAR's own Python package; one against the rest, C = 1."""
    from liblinear.liblinearutil import parameter, problem, train

    meter = run.meter()
    X, y, n_classes = run.load("train")
    data = problem(y, X)
    meter.start()
    model = train(data, parameter(f"-s {solver} -c 1 -q"))
    meter.stop()
    weights = np.zeros((X.shape[1], n_classes))
    values = np.ctypeslib.as_array(model.w, (model.nr_feature * model.nr_class,))
    weights[: model.nr_feature, model.get_labels()] = values.reshape(model.nr_feature, model.nr_class)
    return _of_other_objective(run, meter, weights, 0.0)


def vowpal_wabbit(run: Run, passes: int) -> Meter:
    """One against all from its text format, which it parses in the first pass and caches for the others.

    The samples are shuffled: it takes them in the order of the file.
    """
    from vowpalwabbit import Workspace

    meter = run.meter()
    with tempfile.TemporaryDirectory() as scratch:
        files = {split: Path(scratch) / f"{split}.vw" for split in ("train", "test")}
        for split, file in files.items():
            X, y, n_classes = run.load(split)
            order = np.random.default_rng(run.seed).permutation(len(y)) if split == "train" else range(len(y))
            with file.open("w") as out:
                for i in order:
                    entries = slice(X.indptr[i], X.indptr[i + 1])
                    pairs = zip(X.indices[entries].tolist(), X.data[entries].tolist(), strict=True)
                    out.write(f"{y[i] + 1} | {' '.join(f'{j}:{v:.7g}' for j, v in pairs)}\n")
        again = f" --passes {passes} -c -k --holdout_off" if passes > 1 else ""
        meter.start()
        model = Workspace(
            f"--oaa {n_classes} -b 24 --quiet --random_seed {run.seed} -d {files['train']}{again}"
            f" -f {scratch}/model"
        )
        model.finish()
        meter.stop()
        Workspace(f"--quiet -t -i {scratch}/model -d {files['test']} -p {scratch}/predictions").finish()
        predicted = np.loadtxt(f"{scratch}/predictions").astype(np.int64) - 1
    meter.note(accuracy=float((predicted == y).mean()), passes=passes)
    return meter


def _of_other_objective(run: Run, meter: Meter, weights: Any, intercept: Any, **facts: Any) -> Meter:
    """Record what can be compared although another objective was minimised."""
    rows = int(np.any(weights != 0, axis=1).sum())
    test = accuracy(run.problem, run.folder, weights, intercept)
    meter.note(accuracy=test, nonzero_rows=rows, nonzeros=int(np.count_nonzero(weights)), **facts)
    return meter


@dataclass(frozen=True)
class Method:
    """A method, the interpreter it needs (see ``bench/peers.py``), and what is known about it.

    Attributes
    ----------
    shared : bool
        It minimises the objective of the problem, so that its error can be measured.
    seeded : bool
        Runs differ from seed to seed.
    """

    run: Callable[[Run], Meter]
    interpreter: str | None = None
    shared: bool = True
    seeded: bool = True


METHODS = {
    "bigmc": Method(bigmc),
    "bigmc-streamed": Method(partial(bigmc, streamed=True)),
    "bigmc-constant": Method(partial(bigmc, step="constant")),
    "bigmc-multitask": Method(partial(bigmc, loss="multitask_squared_hinge"), shared=False),
    "bigmc-logistic": Method(partial(bigmc, loss="log_loss"), shared=False),
    "lightning": Method(partial(lightning, shrinking=True), "lightning"),
    "lightning-unshrunk": Method(partial(lightning, shrinking=False), "lightning"),
    "fista": Method(partial(proximal, name="fista"), seeded=False),
    "fista-constant": Method(partial(proximal, name="fista-constant"), seeded=False),
    "sparsa": Method(partial(proximal, name="sparsa"), seeded=False),
    "fobos": Method(partial(proximal, name="fobos")),
    "liblinear-l2": Method(partial(liblinear, solver=1), "liblinear", shared=False, seeded=False),
    "liblinear-l1": Method(partial(liblinear, solver=5), "liblinear", shared=False, seeded=False),
    "sgd-3": Method(partial(sgd, passes=3), shared=False),
    "sgd-10": Method(partial(sgd, passes=10), shared=False),
    "vw-1": Method(partial(vowpal_wabbit, passes=1), "vowpal-wabbit", shared=False),
    "vw-5": Method(partial(vowpal_wabbit, passes=5), "vowpal-wabbit", shared=False),
    "lightning-multitask": Method(
        partial(lightning, shrinking=True, multiclass=False), "lightning", shared=False
    ),
    "lightning-logistic": Method(partial(lightning, shrinking=True, loss="log"), "lightning", shared=False),
}


def main() -> None:
    order = json.loads(sys.argv[1])
    problem, method = PROBLEMS[order["problem"]], METHODS[order["method"]]
    run = Run(
        problem, Path(order["folder"]), order["alpha"], order["seed"],
        order["optimum"] if method.shared else None, order["time_limit"],
    )  # fmt: skip
    print(json.dumps(method.run(run).report()))


if __name__ == "__main__":
    main()
