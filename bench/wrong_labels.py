"""Tables for `tables.py`, a share of whose labels is drawn at random."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

N_ROWS, N_COLUMNS, N_CLASSES = 20_000, 10, 4
CHOSEN_ON = ("shells-30", "shells-50", "friedman-0", "friedman-25", "friedman-50")
JUDGES = ("planes-40", "waves-20", "neighbours-30")
NAMES = (*CHOSEN_ON, *JUDGES)
"""Label noise of `bigmc fit` was made on the first of these; the others were drawn afterwards."""


def made(name: str) -> pd.DataFrame:
    """Return a table by its name, which ends with the percentage of labels that are wrong.

    The others say in which quarter a function of the columns is: the sum of the squares of four normal
    columns ("shells"), their sum ("planes"), the sum of three waves ("waves"), or that of Friedman
    ("Multivariate adaptive regression splines", Annals of Statistics 19, 1991) of uniform columns. The wrong
    ones are drawn at random from all four; in "neighbours", shells else, they are the next quarter.
    """
    function, percentage = name.split("-")
    random = np.random.default_rng(NAMES.index(name))
    shape = (N_ROWS, N_COLUMNS)
    X = random.random(shape) if function == "friedman" else random.normal(size=shape)
    values = FUNCTIONS[function](X)
    label = np.digitize(values, np.quantile(values, np.arange(1, N_CLASSES) / N_CLASSES))
    wrong = random.random(N_ROWS) < int(percentage) / 100
    if function == "neighbours":
        label[wrong] = (label[wrong] + 1) % N_CLASSES
    else:
        label[wrong] = random.integers(0, N_CLASSES, int(wrong.sum()))
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(N_COLUMNS)])
    return table.assign(label=[f"quarter {k}" for k in label])


def _shells(X: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((X[:, :4] ** 2).sum(axis=1))


def _planes(X: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(X[:, :4].sum(axis=1))


def _waves(X: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sin(3 * X[:, :3]).sum(axis=1))


def _friedman(X: NDArray[np.float64]) -> NDArray[np.float64]:
    waves = 10 * np.sin(np.pi * X[:, 0] * X[:, 1])
    return np.asarray(waves + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4])


FUNCTIONS = {
    "shells": _shells,
    "planes": _planes,
    "waves": _waves,
    "friedman": _friedman,
    "neighbours": _shells,
}
