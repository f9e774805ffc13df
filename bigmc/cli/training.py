"""Commands that train: one for each learner, and the regularisation path."""

from __future__ import annotations

import math
from dataclasses import dataclass

import click

from bigmc.cli.arguments import Replacing, Training, Working, as_command
from bigmc.cli.engines import working
from bigmc.cli.terminal import show, show_path
from bigmc.options.declare import argument, option, required, values_of
from bigmc.options.learners import BoostOptions, LearnerOptions, MinimaxOptions, SparseOptions
from bigmc.options.path import PathOptions

CALIBRATE = "Share of the rows to hold out, to calibrate probabilities."


@dataclass(frozen=True, kw_only=True)
class TrainSparse(SparseOptions, Training):
    """Arguments of `bigmc train sparse`."""

    warm_start: str | None = option(None, "Model to start from.")
    calibrate: float | None = option(None, CALIBRATE)


@dataclass(frozen=True, kw_only=True)
class TrainMinimax(MinimaxOptions, Training):
    """Arguments of `bigmc train mrc`."""


@dataclass(frozen=True, kw_only=True)
class TrainBoost(BoostOptions, Training):
    """Arguments of `bigmc train boost`."""

    calibrate: float | None = option(None, CALIBRATE)


@as_command
def train_sparse(asked: TrainSparse) -> None:
    """Train the linear classifier: feature selection, ridge, or both."""
    _train(asked, asked, f"--max-passes (now {asked.max_passes})", asked.warm_start, asked.calibrate)


@as_command
def train_mrc(asked: TrainMinimax) -> None:
    """Train the minimax risk classifier, which bounds its own error."""
    more = f"--k-max (now {asked.k_max}) or --time-limit (now {asked.time_limit})"
    _train(asked, asked, more)


@as_command
def train_boost(asked: TrainBoost) -> None:
    """Train the boosted classifier: stumps or small trees per class."""
    _train(asked, asked, f"--rounds (now {asked.n_rounds})", calibrate=asked.calibrate)


train = click.Group(
    "train",
    {"sparse": train_sparse, "mrc": train_mrc, "boost": train_boost},
    no_args_is_help=True,
    help="Train a learner on a dataset.",
)


def _train(
    asked: Training,
    options: LearnerOptions,
    more: str,
    warm_start: str | None = None,
    calibrate: float | None = None,
) -> None:
    """Train and show the result; if it stopped before ``tol``, name the option to increase."""
    from bigmc import api

    with working(asked) as work:
        result = api.train(
            options.learner,
            asked.dataset,
            asked.to,
            split=asked.split,
            warm_start=warm_start,
            calibrate=calibrate,
            overwrite=asked.overwrite,
            **work.means,
            **options.parameters(),
        )
    gap = result["certificate"]["gap"]
    if not result["converged"] and math.isfinite(gap):
        work.screen.say(
            f"bigmc: warning: stopped after {result['n_passes']:.3g} passes with a gap of {gap:.3g}, above "
            f"the tolerance of {result['tol']:g}; give a larger {more} or --tol"
        )
    for note in result["notes"]:
        work.screen.say(f"bigmc: warning: {note}")
    shown = {name: value for name, value in result.items() if name != "notes" or asked.as_json}
    show(shown | work.engine.usage(), asked, beside=asked.to)


@dataclass(frozen=True, kw_only=True)
class Path(Working, Replacing, PathOptions):
    """Arguments of `bigmc path`."""

    dataset: str = argument("Dataset.", metavar="DATASET")
    to: str = required("Folder for the models, a table and a plot.")
    warm_start: str | None = option(None, "Model to start the first training from.")


@as_command
def path(asked: Path) -> None:
    """Train linear models for decreasing penalties; choose the best."""
    from bigmc import api

    with working(asked) as work:
        result = api.sparse_path(
            asked.dataset,
            asked.to,
            warm_start=asked.warm_start,
            overwrite=asked.overwrite,
            **work.means,
            **values_of(PathOptions, asked),
        )
        if not result["best"]["n_nonzero_features"]:
            work.screen.say(
                "bigmc: warning: no model of the path is better than one without features; columns of tables "
                "need one scale: ingest them with --standardize or --weighting scaled"
            )
        elif result["at_edge"]:
            work.screen.say("bigmc: warning: the best penalty is at the edge of the path; give more --alphas")
    if asked.as_json:
        show(result | work.engine.usage(), asked)
    else:
        show_path(result)
