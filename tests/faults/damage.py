"""Files of datasets and models damaged one at a time; opened without ``verify`` they are refused or right."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.errors import StoreError
from bigmc.model import load_model
from bigmc.store.block import read_block
from bigmc.store.dataset import Dataset
from bigmc.store.verify import verify
from faults import crash
from faults.commands import COMMANDS, MODELS, Command, result
from faults.trials import EXPECTED, Outcome, record

UNFINISHED = (
    "ingest",
    "ingest numbers",
    "append",
    "train sparse",
    "train boost",
    "train mrc",
    "path",
    "predict",
)
HARMS = ("flip", "cut", "empty", "delete", "longer", "swap", "older", "zeros", "folder", "extra")


def all_trials() -> Iterator[tuple[str, Callable[..., Outcome]]]:
    """Yield a name and a function of inputs, folder and seed for each dataset and model that is damaged."""
    for name in ("d.bigmc", "n.bigmc"):
        yield name, partial(_dataset, name)
    yield "appended d.bigmc", _appended
    for name in MODELS:
        yield name, partial(_model, name)
    for command in COMMANDS:
        if command.name in UNFINISHED:
            yield f"unfinished {command.name}", partial(unfinished_outcome, command)


def _dataset(name: str, inputs: Path, work: Path, seed: int) -> Outcome:
    return dataset_outcome(inputs / name, work, seed, 12)


def _appended(inputs: Path, work: Path, seed: int) -> Outcome:
    appended = work / "appended"
    shutil.copytree(inputs / "d.bigmc", appended / "d.bigmc")
    options = {"memory_limit": "64MB", "engine": ThreadEngine(1), "on_bad_row": "quarantine"}
    api.ingest(inputs / "more.csv", appended / "d.bigmc", append=True, **options)
    return dataset_outcome(appended / "d.bigmc", work, seed, 6)


def _model(name: str, inputs: Path, work: Path, seed: int) -> Outcome:
    _, data = MODELS[name]
    return model_outcome(inputs / name, inputs / data, seed, 150, work)


def dataset_outcome(path: Path, work: Path, seed: int, each: int) -> Outcome:
    """Damage every file of a dataset in so many ways."""
    rng, outcome = random.Random(seed), Outcome(f"{path.parent.name}/{path.name}", "damage")
    right = dataset_digest(path)
    copy = work / "damaged" / path.name
    files = sorted(p.relative_to(path) for p in path.rglob("*") if p.is_file())
    for file in files:
        for number in range(each):
            harm = HARMS[number % len(HARMS)]
            shutil.copytree(path, copy)
            what = apply_harm(copy / file, [copy / f for f in files], harm, rng)
            _judge(outcome, f"{file} {what}", right, lambda: dataset_digest(copy))
            shutil.rmtree(copy)
    return outcome


def model_outcome(path: Path, data: Path, seed: int, each: int, work: Path) -> Outcome:
    """Damage a model in so many ways and places."""
    rng, outcome = random.Random(seed), Outcome(path.name, "damage")
    right = model_digest(path, data)
    copy = work / path.name
    for number in range(each):
        shutil.copy(path, copy)
        what = apply_harm(copy, [copy], HARMS[number % len(HARMS)], rng)
        _judge(outcome, what, right, lambda: model_digest(copy, data))
        if copy.is_dir():
            copy.rmdir()
        copy.unlink(missing_ok=True)
    return outcome


def unfinished_outcome(command: Command, inputs: Path, work: Path, seed: int, each: int = 80) -> Outcome:
    """Damage one file of what a killed command has left; the command again is refused, or right.

    A file that is moved into the dataset as it is counts as refused if the dataset's reader refuses it.
    """
    found = record(command, inputs, work)
    outcome, rng = Outcome(f"unfinished {command.name}", "damage"), random.Random(seed)
    images = [image for _, image in crash.states(found.before, found.log, seed, 0)]
    for number in range(each):
        image = rng.choice(images)
        folder = work / "unfinished"
        folder.mkdir()
        crash.materialise(image, found.folder, folder)
        files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "lock")
        if files:
            file = rng.choice(files)
            held = {p: p.read_bytes() for p in files}
            what = apply_harm(file, files, HARMS[number % len(HARMS)], rng)
            changed = {p for p in files if not p.is_file() or p.read_bytes() != held[p]}  # two are swapped
            damaged = {str(p.relative_to(folder)) for p in changed | {file}}
            run_again = partial(_finish, command, inputs, folder, found.made, damaged)
            _judge(outcome, f"{file.relative_to(folder)} {what}", "", run_again)
        shutil.rmtree(folder)
    return outcome


def _finish(command: Command, inputs: Path, folder: Path, made: dict[str, bytes], damaged: set[str]) -> str:
    """Run a command to its end and return in what it is wrong, if in anything that is not refused.

    A finished result that was damaged may stay as it is if whoever reads it is told.
    """
    command.run(inputs, folder)
    now = result(folder)
    wrong = {str(Path(name)) for name in made if now.get(name) != made[name]}
    for name in damaged & wrong:
        if not name.endswith((".bigmc", ".model", ".parquet", "path.json")):
            wrong.remove(name)  # figures and a picture of a path that is finished
        elif name.endswith(".rejects.parquet") and not (folder / name).is_file():
            wrong.remove(name)  # taken away
    for name in sorted(wrong):
        path = folder / name
        if path.suffix == ".model":
            right = folder / "right.model"
            right.write_bytes({str(Path(name)): content for name, content in made.items()}[name])
            data = inputs / (MODELS[name][1] if name in MODELS else "d.bigmc")
            if model_digest(path, data) == model_digest(right, data):
                wrong.remove(name)
    for path in folder.glob("*.bigmc"):
        if wrong:
            dataset_digest(path)
            if problems := verify(path):
                raise StoreError("; ".join(problems), "")
    return f"other files: {', '.join(sorted(wrong))}" if wrong else ""


def _judge(outcome: Outcome, what: str, right: str, look: Callable[[], str]) -> None:
    outcome.trials += 1
    outcome.different += 1
    try:
        answer = look()
        if answer != right:
            outcome.problems.append(f"{what}: silently wrong {answer if not right else ''}")
    except EXPECTED as error:
        if "\n" in str(error):
            outcome.problems.append(f"{what}: more than a line: {error}")
    except Exception as error:
        outcome.problems.append(f"{what}: raw {type(error).__name__}: {error}")


def apply_harm(file: Path, files: list[Path], harm: str, rng: random.Random) -> str:
    """Damage a file and say how."""
    content = file.read_bytes()
    place = rng.randrange(max(len(content), 1))
    if harm == "flip" and content:
        file.write_bytes(
            content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]
        )
    elif harm == "cut":
        file.write_bytes(content[:place])
    elif harm == "empty":
        file.write_bytes(b"")
    elif harm == "delete":
        file.unlink()
    elif harm == "longer":
        file.write_bytes(content + rng.randbytes(1 + rng.randrange(9)))
    elif harm == "swap":
        other = rng.choice(files)
        if other.is_file():
            swapped = other.read_bytes()
            other.write_bytes(content)
            file.write_bytes(swapped)
        return f"swapped with {other.name}"
    elif harm == "older":
        # As if restored from an older backup: the same size, other contents.
        file.write_bytes(hashlib.sha256(content).digest() * (len(content) // 32 + 1))
        with file.open("r+b") as cut:
            cut.truncate(len(content))
    elif harm == "zeros":
        length = rng.randrange(1, 64)
        file.write_bytes(
            content[:place] + bytes(min(length, len(content) - place)) + content[place + length :]
        )
    elif harm == "folder":
        file.unlink()
        file.mkdir()
    elif harm == "extra":
        file.with_name(f"{file.name}.extra").write_bytes(content)
    return f"{harm} at {place}"


def dataset_digest(path: Path) -> str:
    """Return a digest of all that a dataset answers."""
    dataset = Dataset.open(path)
    digest = hashlib.sha256(json.dumps(dataset.info(), sort_keys=True).encode())
    block = read_block(dataset, 0, dataset.n_features)
    for array in (block.indptr, block.indices, block.data, dataset.labels(), dataset.row_ids()):
        digest.update(np.ascontiguousarray(array).tobytes())
    for array in (dataset.column_nnz(), *dataset.class_statistics(0, dataset.n_features)):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr(dataset.classes.tolist()).encode())
    for file in dataset.files("names.parquet"):
        digest.update(file.read_bytes())
    digest.update(repr(dataset.features).encode())
    return digest.hexdigest()


def model_digest(path: Path, data: Path) -> str:
    """Return a digest of a model and of its scores."""
    model = load_model(path)
    digest = hashlib.sha256(json.dumps(model.info(), sort_keys=True, default=str).encode())
    dataset = Dataset.open(data)
    for number in range(dataset.n_shards):
        digest.update(np.ascontiguousarray(model.shard_scores(dataset, number)).tobytes())
    return digest.hexdigest()
