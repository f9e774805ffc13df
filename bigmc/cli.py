"""The command line: arguments to one function each, results on stdout, progress on stderr."""

from __future__ import annotations

import errno
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from bigmc import __version__
from bigmc.budget import MemoryLimitError
from bigmc.errors import BigmcError
from bigmc.screen import Screen, show, show_features, show_path

app = typer.Typer(
    name="bigmc",
    help="Multiclass learning on data larger than memory, with a proof of how good the answer is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
train_app = typer.Typer(no_args_is_help=True, help="Train a learner on a dataset.")
app.add_typer(train_app, name="train")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Memory = Annotated[
    str | None,
    typer.Option("--memory", help="Memory limit above the bare process, like 512MB or 2GB.", metavar="SIZE"),
]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Threads; by default all processors.")]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="Scan the shards on a Dask cluster, not on threads."),
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="csv, tsv, jsonl, parquet or svmlight; by default from the name."),
]
TrainData = Annotated[Path, typer.Argument(metavar="DATASET", help="Dataset.", show_default=False)]
NewModel = Annotated[Path, typer.Option("--to", help="Model to make.", show_default=False)]
TrainSplit = Annotated[str, typer.Option("--split", help="Split to train on.")]
OnBadRow = Annotated[
    Literal["fail", "quarantine"],
    typer.Option("--on-bad-row", help="fail: stop at it. quarantine: set it aside."),
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bigmc {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    pass


@app.command()
def ingest(
    source: Annotated[list[str], typer.Argument(help="Files, folders or globs.", show_default=False)],
    to: Annotated[Path, typer.Option("--to", help="Dataset to make.", show_default=False)],
    text: Annotated[list[str] | None, typer.Option("--text", help="Text column; may be repeated.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="Label column.")] = None,
    categorical: Annotated[
        list[str] | None, typer.Option("--categorical", help="Column hashed as name=value; may be repeated.")
    ] = None,
    numeric: Annotated[
        list[str] | None,
        typer.Option("--numeric", help="Number hashed by its column's name; may be repeated."),
    ] = None,
    dense: Annotated[
        list[str] | None,
        typer.Option("--dense", help="Number kept as a feature of its own; may be repeated."),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Column copied along with the rows; may be repeated.")
    ] = None,
    hash_bits: Annotated[int, typer.Option(help="Hash to 2^BITS buckets.")] = 18,
    ngrams: Annotated[str, typer.Option(help="Shortest and longest n-gram.")] = "1-2",
    analyzer: Annotated[str, typer.Option(help="word, char or char_wb.")] = "word",
    lowercase: Annotated[bool, typer.Option(help="Lowercase texts before hashing.")] = True,
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Dense features become (x - mean) / deviation.")
    ] = False,
    fourier: Annotated[int, typer.Option(help="Turn dense features into so many random Fourier ones.")] = 0,
    gamma: Annotated[
        float | None, typer.Option(help="Of their Gaussian kernel; by default 1 / number of dense features.")
    ] = None,
    weighting: Annotated[
        str | None,
        typer.Option(help="counts, binary, l2 or tfidf; by default l2 for hashed columns, else counts."),
    ] = None,
    split: Annotated[str, typer.Option(help="Splits and their shares.")] = "train=0.8,test=0.2",
    group: Annotated[str | None, typer.Option(help="Column whose rows stay together in a split.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    n_features: Annotated[int | None, typer.Option(help="Width of svmlight data.")] = None,
    names: Annotated[bool, typer.Option(help="Keep the words behind hashed features.")] = True,
    memory: Memory = None,
    threads: Threads = None,
    on_bad_row: OnBadRow = "fail",
    format: Format = None,
    as_json: Json = False,
) -> None:
    """Turn text, CSV, JSONL, Parquet or svmlight files into a dataset."""
    from bigmc import api

    with Screen() as screen:
        dataset = api.ingest(
            source,
            to,
            text=text,
            label=label,
            categorical=categorical or (),
            numeric=numeric or (),
            dense=dense or (),
            keep=keep or (),
            hash_bits=hash_bits,
            ngrams=_parse_ngrams(ngrams),
            analyzer=analyzer,
            lowercase=lowercase,
            standardize=standardize,
            fourier=fourier,
            gamma=gamma,
            weighting=weighting,
            split=split,
            group=group,
            seed=seed,
            n_features=n_features,
            names=names,
            memory_limit=memory,
            engine=_engine(threads),
            on_bad_row=on_bad_row,
            format=format,
            progress=screen.update,
        )
    show(dataset.info(), as_json)


@app.command()
def info(path: Annotated[Path, typer.Argument(help="Dataset or model.")], as_json: Json = False) -> None:
    """Say what a dataset or a model holds."""
    from bigmc import api

    show(api.info(path), as_json)


@app.command()
def verify(path: Annotated[Path, typer.Argument(help="Dataset or model.")], as_json: Json = False) -> None:
    """Check every byte of a dataset or a model against its manifest."""
    from bigmc import api

    problems = api.verify(path)
    show({"path": str(path), "sound": not problems, "problems": problems}, as_json)
    if problems:
        raise typer.Exit(1)


@train_app.command("sparse")
def train_sparse(
    dataset: TrainData,
    to: NewModel,
    split: TrainSplit = "train",
    alpha: Annotated[float, typer.Option(help="Strength of the penalty.")] = 1e-4,
    loss: Annotated[
        str, typer.Option(help="squared_hinge, multitask_squared_hinge or log_loss.")
    ] = "squared_hinge",
    penalty: Annotated[str, typer.Option(help="l1/l2, l1, l1/linf or sparse_group.")] = "l1/l2",
    l1_ratio: Annotated[float | None, typer.Option(help="Share of the l1 norm in sparse_group.")] = None,
    ridge: Annotated[float, typer.Option(help="Strength of the squared norm beside the penalty.")] = 0.0,
    fit_intercept: Annotated[bool, typer.Option(help="Fit an intercept, which is not penalised.")] = False,
    class_weight: Annotated[str | None, typer.Option(help="balanced, or nothing.")] = None,
    tol: Annotated[float, typer.Option(help="Stop at this relative duality gap.")] = 1e-3,
    max_passes: Annotated[int, typer.Option(help="Stop after reading the data this often.")] = 100,
    step: Annotated[str, typer.Option(help="line_search or constant.")] = "line_search",
    seed: Annotated[int, typer.Option(help="Seed of the order of the coordinates.")] = 0,
    warm_start: Annotated[Path | None, typer.Option(help="Model to start from.")] = None,
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train the sparse linear classifier: a loss, a penalty that selects features, and maybe a ridge."""
    options = {
        "warm_start": warm_start,
        "alpha": alpha,
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
    _train("sparse", dataset, to, split, options, memory, threads, as_json, more)


@train_app.command("mrc")
def train_mrc(
    dataset: TrainData,
    to: NewModel,
    split: TrainSplit = "train",
    lambda0: Annotated[float, typer.Option(help="Regularisation.")] = 0.01,
    fit_intercept: Annotated[bool, typer.Option(help="Add a feature that is always 1.")] = True,
    eps1: Annotated[float, typer.Option(help="Violation from which a constraint is taken in.")] = 1e-2,
    eps2: Annotated[float, typer.Option(help="Violation from which a component is taken in.")] = 1e-5,
    n_max: Annotated[int, typer.Option(help="Most constraints taken in at once.")] = 400,
    m_max: Annotated[int, typer.Option(help="Most components taken in at once.")] = 400,
    k_max: Annotated[int, typer.Option(help="Most iterations.")] = 1000,
    tol: Annotated[float, typer.Option(help="Stop at this difference of the bounds.")] = 1e-3,
    time_limit: Annotated[float | None, typer.Option(help="Seconds; then the best model so far.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first working set.")] = 0,
    memory: Memory = None,
    threads: Threads = None,
    scheduler: Scheduler = None,
    as_json: Json = False,
) -> None:
    """Train the minimax risk classifier, whose certificate bounds its error."""
    options = {
        "lambda0": lambda0,
        "fit_intercept": fit_intercept,
        "eps1": eps1,
        "eps2": eps2,
        "n_max": n_max,
        "m_max": m_max,
        "k_max": k_max,
        "tol": tol,
        "time_limit": time_limit,
        "random_state": seed,
    }
    more = f"--k-max (now {k_max}) or --time-limit (now {time_limit})"
    _train("mrc", dataset, to, split, options, memory, threads, as_json, more, scheduler)


@train_app.command("boost")
def train_boost(
    dataset: TrainData,
    to: NewModel,
    split: TrainSplit = "train",
    C: Annotated[float, typer.Option("--C", help="Weight of the loss; larger fits closer.")] = 1e5,
    rounds: Annotated[int, typer.Option(help="Most rounds.")] = 100,
    max_depth: Annotated[int, typer.Option(help="Levels of a weak learner, 1 to 4.")] = 1,
    family: Annotated[str, typer.Option(help="auto, stump or ray.")] = "auto",
    pool: Annotated[int, typer.Option(help="Learners of every class that a pass brings.")] = 40,
    class_weight: Annotated[str | None, typer.Option(help="balanced, or nothing.")] = None,
    tol: Annotated[float, typer.Option(help="Stop at this relative duality gap.")] = 1e-3,
    validation_fraction: Annotated[float, typer.Option(help="Share of the rows to hold out.")] = 0.0,
    patience: Annotated[int, typer.Option(help="Rounds without gain on them before it stops.")] = 10,
    time_limit: Annotated[float | None, typer.Option(help="Begin no round after so many seconds.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the updates and of the rows held out.")] = 0,
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train the boosted classifier: stumps, rays or shallow trees of each class's own."""
    options = {
        "C": C,
        "n_rounds": rounds,
        "max_depth": max_depth,
        "family": family,
        "pool": pool,
        "class_weight": class_weight,
        "tol": tol,
        "validation_fraction": validation_fraction,
        "patience": patience,
        "time_limit": time_limit,
        "random_state": seed,
    }
    more = f"--rounds (now {rounds})"
    _train("boost", dataset, to, split, options, memory, threads, as_json, more)


def _train(
    learner: str,
    dataset: Path,
    to: Path,
    split: str,
    options: dict[str, Any],
    memory: str | None,
    threads: int | None,
    as_json: bool,
    more: str,
    scheduler: str | None = None,
) -> None:
    """Train and show the result; where it stopped before ``tol``, say what option would let it go on."""
    from bigmc import api

    with Screen() as screen, _workers(threads, scheduler) as engine:
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
        print(
            f"bigmc: warning: stopped after {result['n_passes']:.3g} passes with a gap of {gap:.3g}, above "
            f"the tolerance of {options['tol']:g}; give a larger {more} or --tol",
            file=sys.stderr,
        )
    show(result, as_json)


@app.command()
def path(
    dataset: TrainData,
    to: Annotated[Path, typer.Option("--to", help="Folder for models, table and plot.", show_default=False)],
    split: TrainSplit = "train",
    validation: Annotated[str, typer.Option(help="Split to choose the model by.")] = "test",
    alphas: Annotated[int, typer.Option(help="Penalties, from the largest that leaves a weight.")] = 10,
    alpha_ratio: Annotated[float, typer.Option(help="The smallest penalty relative to the largest.")] = 1e-2,
    loss: Annotated[str, typer.Option(help="Loss.")] = "squared_hinge",
    penalty: Annotated[str, typer.Option(help="Penalty.")] = "l1/l2",
    fit_intercept: Annotated[bool, typer.Option(help="Fit an intercept, which is not penalised.")] = False,
    class_weight: Annotated[str | None, typer.Option(help="balanced, or nothing.")] = None,
    tol: Annotated[float, typer.Option(help="Stop each training at this relative duality gap.")] = 1e-3,
    max_passes: Annotated[int, typer.Option(help="Stop each training after so many passes.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the order of the coordinates.")] = 0,
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train the sparse linear classifier along falling penalties, and choose one."""
    from bigmc import api

    with Screen() as screen:
        result = api.sparse_path(
            dataset,
            to,
            n_alphas=alphas,
            alpha_ratio=alpha_ratio,
            split=split,
            validation=validation,
            memory_limit=memory,
            engine=_engine(threads),
            progress=screen.update,
            loss=loss,
            penalty=penalty,
            fit_intercept=fit_intercept,
            class_weight=class_weight,
            tol=tol,
            max_passes=max_passes,
            random_state=seed,
        )
    if as_json:
        show(result, as_json)
    else:
        show_path(result)


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="Model.")],
    dataset: Annotated[Path, typer.Argument(help="Dataset.")],
    split: Annotated[str, typer.Option(help="Split to evaluate on.")] = "test",
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Precision, recall and F1 per class.")
    ] = False,
    confusion: Annotated[bool, typer.Option("--confusion", help="Confusion matrix.")] = False,
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Measure a model on a split of a dataset."""
    from bigmc import api

    with Screen() as screen:
        result = api.evaluate(
            model,
            dataset,
            split=split,
            per_class=per_class,
            confusion=confusion,
            memory_limit=memory,
            engine=_engine(threads),
            progress=screen.update,
        )
    show(result, as_json)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Model.")],
    source: Annotated[list[str], typer.Argument(help="Raw files, or one dataset.")],
    to: Annotated[Path, typer.Option("--to", help="Parquet file to write.", show_default=False)],
    split: Annotated[str | None, typer.Option(help="Split of a dataset; by default all rows.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write the score of every class too.")] = False,
    on_bad_row: OnBadRow = "fail",
    format: Format = None,
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Predict labels for raw files or a dataset."""
    from bigmc import api

    with Screen() as screen:
        result = api.predict(
            model,
            source[0] if len(source) == 1 else source,
            to,
            split=split,
            scores=scores,
            on_bad_row=on_bad_row,
            format=format,
            memory_limit=memory,
            engine=_engine(threads),
            progress=screen.update,
        )
    show(result, as_json)


@app.command()
def inspect(
    model: Annotated[Path, typer.Argument(help="Model.")],
    top: Annotated[int, typer.Option(min=1, help="Features per class.")] = 20,
    as_json: Json = False,
) -> None:
    """List the strongest features of each class, as words where their names were kept."""
    from bigmc import api

    result = api.inspect(model, top=top)
    if as_json:
        show(result, as_json)
    else:
        show_features(result)


@app.command()
def demo(
    to: Annotated[Path, typer.Option("--to", help="Folder to work in.")] = Path("bigmc-demo"),
    memory: Memory = None,
    as_json: Json = False,
) -> None:
    """Run everything on real text found here: which package does a line of Python come from."""
    from bigmc.demo import run

    with Screen() as screen:
        tell = screen.say if as_json else typer.echo
        result = run(to, memory_limit=memory, progress=screen.update, tell=tell)
    if as_json:
        show(result, as_json)


def _parse_ngrams(text: str) -> tuple[int, int]:
    shortest, _, longest = text.partition("-")
    try:
        return int(shortest), int(longest or shortest)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no range of n-grams; write it like 1-2") from None


def _engine(threads: int | None) -> Any:
    from bigmc.engine import ThreadEngine

    return ThreadEngine(threads)


@contextmanager
def _workers(threads: int | None, scheduler: str | None) -> Iterator[Any]:
    """Yield the engine to train with; a connection to a scheduler is closed at the end."""
    if scheduler is None:
        yield _engine(threads)
        return
    if threads is not None:
        raise typer.BadParameter("give --threads or --scheduler, not both")
    from bigmc.engine.dask import DaskEngine

    with DaskEngine(scheduler) as engine:
        yield engine


def main() -> NoReturn:
    """Run the command line; exit with 0, 1 (data or model error) or 2 (usage error)."""
    try:
        app(standalone_mode=True)
    except (BigmcError, MemoryLimitError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail("interrupted; the same command continues where it stopped", status=130)
    except MemoryError:
        _fail("the machine has no memory left; give a smaller --memory")
    except OSError as error:
        _fail(_describe(error))
    sys.exit(0)


def _describe(error: OSError) -> str:
    where = f" while writing {error.filename}" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"no space is left on the disk{where}; free some and run the same command again, it continues"
    if error.errno == errno.EFBIG:
        return (
            f"a file would grow beyond what this system allows{where}; raise the limit (ulimit -f) and rerun"
        )
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _fail(message: str, status: int = 1) -> NoReturn:
    print(f"bigmc: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)
