"""Manifests and headers of models with one thing changed at random, and right checksums all the same.

Whatever they say, they may not end in a raw exception, nor in a file outside of the folder.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.model.registry import verify_model
from bigmc.store.verify import verify
from faults.commands import MODELS
from faults.damage import dataset_digest, model_digest
from faults.recorder import contents
from faults.trials import EXPECTED, Outcome

NUMBERS: tuple[Any, ...] = (-1, 0, 1, 7, 2**31, 2**63, 2**64, 10**400, 1.5, -0.0, 1e308)
PATHS = ("..", "../x", "../../../../etc/passwd", "/etc/passwd", "a/../../b", "wip/x", "manifest.json")
TEXTS = ("", "x", "7", "a\0b", "a\nb", "\x1b[2J", "\u202e", "\ud800", "x" * 5000, "float64", "object")
NESTED: tuple[Any, ...] = ([], {}, [[]], [None], {"": ""})
VALUES: tuple[Any, ...] = (None, True, False, *NUMBERS, *PATHS, *TEXTS, *NESTED)


def all_trials(each: int = 200) -> Iterator[tuple[str, Callable[..., Outcome]]]:
    """Yield a name and a function of inputs, folder and seed for each manifest and header of a model."""
    for name in ("d.bigmc", "n.bigmc"):
        yield name, lambda inputs, work, seed, name=name: _manifests(inputs / name, work, seed, each)
    for name in MODELS:
        yield name, lambda inputs, work, seed, name=name: _headers(inputs / name, work, seed, each)


def _manifests(path: Path, work: Path, seed: int, each: int) -> Outcome:
    rng, outcome = random.Random(seed), Outcome(f"manifest of {path.name}", "hostile")
    target = work / "hostile" / path.name
    shutil.copytree(path, target)
    original = json.loads((path / "manifest.json").read_bytes())
    before = contents(work / "hostile")
    for _ in range(each):
        fields = copy.deepcopy(original)
        what = change(fields, rng)
        fields.pop("checksum", None)
        text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
        fields["checksum"] = hashlib.sha256(text).hexdigest()
        (target / "manifest.json").write_text(json.dumps(fields))
        _try(outcome, what, lambda: dataset_digest(target))
        _try(outcome, f"verify: {what}", lambda: verify(target))
        outcome.trials += 1
    shutil.copy(path / "manifest.json", target)
    if contents(work / "hostile") != before:
        outcome.problems.append("a file was written")
    shutil.rmtree(work / "hostile")
    outcome.different = outcome.trials
    return outcome


def _headers(path: Path, work: Path, seed: int, each: int) -> Outcome:
    rng, outcome = random.Random(seed), Outcome(f"header of {path.name}", "hostile")
    source, data = (path.parent / name for name in MODELS[path.name])
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    original = json.loads(members.pop("model.json"))
    target = work / path.name
    options = {"memory_limit": "64MB", "engine": ThreadEngine(1), "on_bad_row": "quarantine"}
    for number in range(each):
        header = copy.deepcopy(original)
        what = change(header, rng)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            for name, content in [("model.json", json.dumps(header)), *sorted(members.items())]:
                archive.writestr(zipfile.ZipInfo(name), content)
        _try(outcome, what, lambda: model_digest(target, data))
        _try(outcome, f"verify: {what}", lambda: verify_model(target))
        to = work / f"hostile-{number}.parquet"
        _try(outcome, f"predict: {what}", lambda to=to: api.predict(target, source, to, **options))
        _try(outcome, f"inspect: {what}", lambda: api.inspect(target))
        outcome.trials += 1
    outcome.different = outcome.trials
    return outcome


def change(fields: Any, rng: random.Random) -> str:
    """Change one value somewhere in JSON data, add one or remove one, and say which."""
    places: list[tuple[Any, Any, str]] = []
    _collect(fields, "", places)
    owner, key, where = rng.choice(places)
    what = rng.choice(["set", "set", "set", "remove", "repeat"])
    if what == "remove":
        del owner[key]
    elif what == "repeat" and isinstance(owner, list):
        owner.append(copy.deepcopy(owner[key]))
    else:
        owner[key] = rng.choice(VALUES)
        what = f"set to {str(owner[key])[:20]!r}"
    return f"{where} {what}"


def _collect(value: Any, where: str, places: list[tuple[Any, Any, str]]) -> None:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        places.append((value, key, f"{where}/{key}"))
        _collect(item, f"{where}/{key}", places)


def _try(outcome: Outcome, what: str, look) -> None:
    try:
        look()
    except EXPECTED as error:
        if "\n" in str(error) or isinstance(error, MemoryError):
            outcome.problems.append(f"{what}: more than a line: {error}")
    except Exception as error:
        outcome.problems.append(f"{what}: raw {type(error).__name__}: {error}")
