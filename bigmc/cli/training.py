"""Commands that train: one for each learner, and the regularisation path."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Annotated, Any

import typer

from bigmc.cli.options import (
    Json,
    Memory,
    NewModel,
    Overwrite,
    Scheduler,
    SchedulerFile,
    Threads,
    TrainData,
    TrainSplit,
    workers,
)  # fmt: skip
from bigmc.cli.screen import Screen
from bigmc.cli.settings import with_settings
from bigmc.cli.terminal import show, show_path

train_app = typer.Typer(no_args_is_help=True, help="Train a learner on a dataset.")


@train_app.command("sparse")
@with_settings
def train_sparse(
    dataset: TrainData,
    to: NewModel,
    split: TrainSplit = "train",
    alpha: Annotated[
        str,
        typer.Option(
            help="Strength of the penalty, larger selects fewer features; auto: none, a ridge for accuracy."
        ),
    ] = "auto",
    loss: Annotated[
        str | None,
        typer.Option(
            help="squared_hinge, multitask_squared_hinge, log_loss, or multilabel_ranking for sets; by "
            "default the second, with a number for --alpha the first."
        ),
    ] = None,
    penalty: Annotated[str, typer.Option(help="l1/l2, l1, l1/linf or sparse_group.")] = "l1/l2",
    l1_ratio: Annotated[float | None, typer.Option(help="Share of the l1 norm in sparse_group.")] = None,
    ridge: Annotated[
        float | None,
        typer.Option(
            help="Strength of the squared norm beside the penalty; by default 1 / samples (log_loss: a "
            "tenth), with a number for --alpha 0."
        ),
    ] = None,
    fit_intercept: Annotated[
        bool | None,
        typer.Option(
            "--fit-intercept/--no-fit-intercept",
            help="Fit an intercept, which is not penalised; by default unless --alpha is a number.",
        ),
    ] = None,
    class_weight: Annotated[str | None, typer.Option(help="balanced, or nothing.")] = None,
    tol: Annotated[
        float | None,
        typer.Option(
            help="Stop at this relative duality gap; by default 0.1, with a number for --alpha 0.001."
        ),
    ] = None,
    max_passes: Annotated[int, typer.Option(help="Stop after reading the data this often.")] = 100,
    step: Annotated[str, typer.Option(help="line_search or constant.")] = "line_search",
    seed: Annotated[int, typer.Option(help="Seed of the order of the coordinates.")] = 0,
    warm_start: Annotated[str | None, typer.Option(help="Model to start from.")] = None,
    overwrite: Overwrite = False,
    memory: Memory = None,
    threads: Threads = None,
    scheduler: Scheduler = None,
    scheduler_file: SchedulerFile = None,
    as_json: Json = False,
) -> None:
    """Train the sparse linear classifier: a loss, a penalty that selects features, and maybe a ridge."""
    options = {
        "warm_start": warm_start,
        "overwrite": overwrite,
        "alpha": alpha if alpha == "auto" else _number("--alpha", alpha),
        "loss": loss,
        "penalty": penalty,
        "l1_ratio": l1_ratio,
        "ridge": ridge,
        "fit_intercept": fit_intercept,
        "class_weight": class_weight,
        "tol": tol,
        "max_passes": max_passes,
        "step": step,
        "random_state": seed,
    }
    more = f"--max-passes (now {max_passes})"
    engine = workers(threads, scheduler, scheduler_file)
    _train("sparse", dataset, to, split, options, memory, engine, as_json, more)


@train_app.command("mrc")
@with_settings
def train_mrc(
    dataset: TrainData,
    to: NewModel,
    split: TrainSplit = "train",
    lambda0: Annotated[str, typer.Option(help="Regularisation; auto: 2 / sqrt(rows).")] = "auto",
    fit_intercept: Annotated[bool, typer.Option(help="Add a feature that is always 1.")] = True,
    eps1: Annotated[float, typer.Option(help="Violation from which a constraint is taken in.")] = 1e-2,
    eps2: Annotated[float, typer.Option(help="Violation from which a component is taken in.")] = 1e-5,
    n_max: Annotated[int, typer.Option(help="Most constraints taken in at once.")] = 400,
    m_max: Annotated[int, typer.Option(help="Most components taken in at once.")] = 400,
    k_max: Annotated[int, typer.Option(help="Most iterations.")] = 1000,
    tol: Annotated[float, typer.Option(help="Stop at this difference of the bounds.")] = 1e-3,
    time_limit: Annotated[float | None, typer.Option(help="Seconds; then the best model so far.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first working set.")] = 0,
    overwrite: Overwrite = False,
    memory: Memory = None,
    threads: Threads = None,
    scheduler: Scheduler = None,
    scheduler_file: SchedulerFile = None,
    as_json: Json = False,
) -> None:
    """Train the minimax risk classifier, whose certificate bounds its error."""
    options = {
        "lambda0": lambda0 if lambda0 == "auto" else _number("--lambda0", lambda0),
        "fit_intercept": fit_intercept,
        "eps1": eps1,
        "eps2": eps2,
        "n_max": n_max,
        "m_max": m_max,
        "k_max": k_max,
        "tol": tol,
        "time_limit": time_limit,
        "random_state": seed,
        "overwrite": overwrite,
    }
    more = f"--k-max (now {k_max}) or --time-limit (now {time_limit})"
    engine = workers(threads, scheduler, scheduler_file)
    _train("mrc", dataset, to, split, options, memory, engine, as_json, more)


@train_app.command("boost")
@with_settings
def train_boost(
    dataset: TrainData,
    to: NewModel,
    split: TrainSplit = "train",
    C: Annotated[
        str, typer.Option("--C", help="Weight of the loss, larger fits closer; auto: by rows held out.")
    ] = "1e5",
    rounds: Annotated[int, typer.Option(help="Most rounds.")] = 100,
    max_depth: Annotated[int, typer.Option(help="Levels of a weak learner, 1 to 4.")] = 1,
    family: Annotated[str, typer.Option(help="auto, stump or ray.")] = "auto",
    learners: Annotated[
        str, typer.Option(help="class: each class takes those found for it; shared: all take those of any.")
    ] = "class",
    pool: Annotated[
        int | None,
        typer.Option(help="Learners of every class that a pass brings; by default 40, for trees 20."),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Part of an update's way that it goes; by default 1, for trees 0.3.")
    ] = None,
    class_weight: Annotated[str | None, typer.Option(help="balanced, or nothing.")] = None,
    tol: Annotated[float, typer.Option(help="Stop at this relative duality gap.")] = 1e-3,
    validation_fraction: Annotated[float, typer.Option(help="Share of the rows to hold out.")] = 0.0,
    patience: Annotated[int, typer.Option(help="Rounds without gain on them before it stops.")] = 10,
    time_limit: Annotated[float | None, typer.Option(help="Begin no round after so many seconds.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the updates and of the rows held out.")] = 0,
    overwrite: Overwrite = False,
    memory: Memory = None,
    threads: Threads = None,
    scheduler: Scheduler = None,
    scheduler_file: SchedulerFile = None,
    as_json: Json = False,
) -> None:
    """Train the boosted classifier: stumps, rays or shallow trees of each class's own."""
    options = {
        "C": C if C == "auto" else _number("--C", C),
        "n_rounds": rounds,
        "max_depth": max_depth,
        "family": family,
        "learners": learners,
        "pool": pool,
        "learning_rate": learning_rate,
        "class_weight": class_weight,
        "tol": tol,
        "validation_fraction": validation_fraction,
        "patience": patience,
        "time_limit": time_limit,
        "random_state": seed,
        "overwrite": overwrite,
    }
    more = f"--rounds (now {rounds})"
    engine = workers(threads, scheduler, scheduler_file)
    _train("boost", dataset, to, split, options, memory, engine, as_json, more)


def _train(
    learner: str,
    dataset: str,
    to: str,
    split: str,
    options: dict[str, Any],
    memory: str | None,
    opened: AbstractContextManager[Any],
    as_json: bool,
    more: str,
) -> None:
    """Train and show the result; where it stopped before ``tol``, say what option would let it go on."""
    from bigmc import api

    with Screen() as screen, opened as engine:
        result = api.train(
            learner,
            dataset,
            to,
            split=split,
            memory_limit=memory,
            engine=engine,
            progress=screen.update,
            **options,
        )
    gap = result["certificate"]["gap"]
    if not result["converged"] and math.isfinite(gap):
        screen.say(
            f"bigmc: warning: stopped after {result['n_passes']:.3g} passes with a gap of {gap:.3g}, above "
            f"the tolerance of {result['tol']:g}; give a larger {more} or --tol",
        )
    show(result | engine.usage(), as_json, beside=to)


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor auto", param_hint=option) from None


def path(
    dataset: TrainData,
    to: Annotated[str, typer.Option("--to", help="Folder for models, table and plot.", show_default=False)],
    split: TrainSplit = "train",
    validation: Annotated[
        str, typer.Option(help="Split to choose by; without valid, a fifth of the training rows.")
    ] = "valid",
    alphas: Annotated[int, typer.Option(help="Penalties, from the largest that leaves a weight.")] = 10,
    alpha_ratio: Annotated[float, typer.Option(help="The smallest penalty relative to the largest.")] = 1e-2,
    loss: Annotated[str, typer.Option(help="Loss.")] = "multitask_squared_hinge",
    penalty: Annotated[str, typer.Option(help="Penalty.")] = "l1/l2",
    l1_ratio: Annotated[float | None, typer.Option(help="Share of the l1 norm in sparse_group.")] = None,
    ridge: Annotated[float, typer.Option(help="Strength of the squared norm beside the penalty.")] = 1e-5,
    fit_intercept: Annotated[bool, typer.Option(help="Fit an intercept, which is not penalised.")] = False,
    class_weight: Annotated[str | None, typer.Option(help="balanced, or nothing.")] = None,
    tol: Annotated[float, typer.Option(help="Stop each training at this relative duality gap.")] = 1e-1,
    max_passes: Annotated[int, typer.Option(help="Stop each training after so many passes.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the order of the coordinates.")] = 0,
    overwrite: Overwrite = False,
    memory: Memory = None,
    threads: Threads = None,
    scheduler: Scheduler = None,
    scheduler_file: SchedulerFile = None,
    as_json: Json = False,
) -> None:
    """Train the sparse linear classifier along falling penalties, and choose one."""
    from bigmc import api

    with Screen() as screen, workers(threads, scheduler, scheduler_file) as engine:
        result = api.sparse_path(
            dataset,
            to,
            n_alphas=alphas,
            alpha_ratio=alpha_ratio,
            split=split,
            validation=validation,
            overwrite=overwrite,
            memory_limit=memory,
            engine=engine,
            progress=screen.update,
            loss=loss,
            penalty=penalty,
            l1_ratio=l1_ratio,
            ridge=ridge,
            fit_intercept=fit_intercept,
            class_weight=class_weight,
            tol=tol,
            max_passes=max_passes,
            random_state=seed,
        )
        if result["at_edge"]:
            screen.say("bigmc: warning: the best penalty is at the edge of the path; give more --alphas")
    if as_json:
        show(result | engine.usage(), as_json)
    else:
        show_path(result)
