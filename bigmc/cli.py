"""The command line: arguments to one function each, results on stdout, progress on stderr."""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path
from types import FrameType
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
    loss: Annotated[str, typer.Option(help="Loss.")] = "squared_hinge",
    penalty: Annotated[str, typer.Option(help="Penalty.")] = "l1/l2",
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
    """Train the ℓ1/ℓ2-regularised sparse linear classifier."""
    options = {
        "warm_start": warm_start,
        "alpha": alpha,
        "loss": loss,
        "penalty": penalty,
        "fit_intercept": fit_intercept,
        "class_weight": class_weight,
        "tol": tol,
        "max_passes": max_passes,
        "step": step,
        "random_state": seed,
    }
    more = f"--max-passes (now {max_passes})"
    _train("sparse", dataset, to, split, options, memory, threads, as_json, more)


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
) -> None:
    """Train and show the result; where it stopped before ``tol``, say what option would let it go on."""
    from bigmc import api

    with Screen() as screen:
        result = api.train(
            learner,
            dataset,
            to,
            split=split,
            memory_limit=memory,
            engine=_engine(threads),
            progress=screen.update,
            **options,
        )
    if not result["converged"]:
        gap = result["certificate"]["gap"]
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


def main() -> NoReturn:
    """Run the command line; exit with 0, 1 (data or model error) or 2 (usage error)."""
    before = signal.signal(signal.SIGINT, _interrupted)
    try:
        app(standalone_mode=True)
    except (BigmcError, MemoryLimitError) as error:
        _fail(str(error))
    except MemoryError:
        _fail("the machine has no memory left; give a smaller --memory")
    except OSError as error:
        _fail(_describe(error))
    finally:
        signal.signal(signal.SIGINT, before)
    sys.exit(0)


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    """Say so and end at once, as if killed: waiting for the parts that are running could take minutes."""
    shown_again = b"\x1b[?25h\n" if sys.stderr.isatty() else b""  # a progress bar hides the cursor
    os.write(2, shown_again + b"bigmc: interrupted; the same command continues where it stopped\n")
    os._exit(130)


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


def _fail(message: str) -> NoReturn:
    print(f"bigmc: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(1)
