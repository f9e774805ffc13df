"""Ingest, train, evaluate and predict far more data than the memory limit, each under a hard cap.

    python bench/memory_cap.py --memory 128MB --to /tmp/cap

Text is sampled with a seed from the Python sources installed here: windows of some 300 words, labelled
with their package, until there are ``--times`` times more bytes than the limit, before and after
hashing. Every step is one ``bigmc`` command in a process of its own, which the kernel kills when it
takes more than the bare imports of the command and 1.5 times ``--memory``: by a memory cgroup where this
user may make one, else by a limit on its data segment. One JSON line per step: seconds, peak, cap and
bytes read. The limit holds for anonymous memory, read twenty times a second; ``peak_bytes`` counts pages of
mapped files as well, which the system takes back when others need memory. Run it twice on a fresh install:
the processes that compile kernels count for the cap.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
GROUPS = Path("/sys/fs/cgroup/memory")
LAST_TO_GO = 10.0
"""Seconds to wait for the processes of a group to end."""
CLASSES = 12
SOURCE_BYTES = 16 << 20
"""Most text taken from one package."""
WINDOW = 2600
"""Characters of a document."""

IMPORTS = {
    "ingest": "bigmc.cli, bigmc.ingestion, bigmc.store.dataset, pyarrow.compute, pyarrow.parquet, numcodecs",
    "train": "bigmc.cli, bigmc.training.run, bigmc.solvers.sparse.out_of_core, pyarrow.compute",
    "evaluate": "bigmc.cli, bigmc.inference.evaluation.evaluate, bigmc.ingestion.memory, pyarrow.compute, "
    "numcodecs",
    "predict": "bigmc.cli, bigmc.inference.predict, bigmc.ingestion.memory, pyarrow.parquet",
}
"""Modules whose size is the bare process of each command."""


def generate(to: Path, n_bytes: int, seed: int) -> None:
    """Write documents until the file has the wanted size."""
    sys.path.insert(0, str(ROOT))
    from bigmc.cli.demo import installed_packages

    rng = random.Random(seed)
    packages = {name: files for name, (_, files) in installed_packages().items()}
    sizes = {name: sum(file.stat().st_size for file in files) for name, files in packages.items()}
    texts = []
    for name in sorted(sizes, key=lambda name: (-sizes[name], name))[:CLASSES]:
        held: list[str] = []
        for file in packages[name]:
            held.append(file.read_text(encoding="utf-8", errors="ignore").replace("\0", ""))
            if sum(map(len, held)) > SOURCE_BYTES:
                break
        texts.append((name, "\n".join(held)))
    aside = to.with_suffix(".partial")
    with aside.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["text", "label"])
        for number in itertools.count():
            if number % 1000 == 0 and out.tell() >= n_bytes:
                break
            name, text = texts[rng.randrange(len(texts))]
            start = rng.randrange(max(1, len(text) - WINDOW))
            writer.writerow([" ".join(text[start : start + WINDOW].split()), name])
    aside.rename(to)


@contextmanager
def capped(n_bytes: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Give the kind of cap, and what a child process must call to be under it."""
    group = GROUPS / f"bigmc-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(n_bytes))
    except OSError:
        yield "data segment", lambda: resource.setrlimit(resource.RLIMIT_DATA, (n_bytes, n_bytes))
        return
    try:
        yield "cgroup", lambda: (group / "cgroup.procs").write_text(str(os.getpid())) and None
    finally:
        end = time.monotonic() + LAST_TO_GO
        while (group / "cgroup.procs").read_text() and time.monotonic() < end:
            time.sleep(0.1)  # a process that compiled kernels ends just after the one that it did so for
        group.rmdir()


def anonymous(process: int | str) -> int:
    """Return the anonymous resident bytes of a process, 0 once it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):  # its parent has taken note of the end
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def sample_anonymous(process: int, samples: list[int]) -> None:
    """Read the anonymous bytes of a process until it ends."""
    while now := anonymous(process):
        samples.append(now)
        time.sleep(0.05)


def run(
    step: str,
    command: list[str],
    limit: int,
    bare: int,
    bare_anonymous: int,
    share: float = 1.5,
    stderr: IO[str] | None = None,
) -> dict[str, Any]:
    """Run one command under a cap of the bare imports and `share` times its limit; return its figures."""
    cap = bare + int(limit * share)
    started = time.monotonic()
    with capped(cap) as (kind, enter):
        process = subprocess.Popen(
            [sys.executable, "-m", "bigmc", *command, "--memory", str(limit), "--json"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            preexec_fn=enter,
            text=True,
        )
        assert process.stdout is not None
        samples: list[int] = []
        sampler = threading.Thread(target=sample_anonymous, args=(process.pid, samples))
        sampler.start()
        said = process.stdout.read()
        sampler.join()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    figures = json.loads(said) if process.returncode == 0 else {}
    peak = usage.ru_maxrss * 1024
    return {
        "step": step,
        "status": process.returncode,
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_bytes": peak,
        "above_bare_bytes": peak - bare,
        "anonymous_above_bare_bytes": max(samples, default=0) - bare_anonymous,
        "limit_bytes": limit,
        "cap_bytes": cap,
        "cap": kind,
        "within_limit": max(samples, default=0) - bare_anonymous <= limit,
        "disk_bytes_read": usage.ru_inblock * 512,
        **{k: figures[k] for k in ("n_samples", "nnz", "bytes", "accuracy", "macro_f1") if k in figures},
        **{
            k: figures[k]
            for k in ("n_passes", "file_bytes_read", "certificate", "n_nonzero_features")
            if k in figures
        },
    }


def bare_bytes(step: str) -> tuple[int, int]:
    """Return the resident bytes, and those of them that are anonymous, of a process that only imports."""
    left_out = "from bigmc.cli.left_out import leave_out_unused; leave_out_unused()"
    code = f"{left_out}; import {IMPORTS[step]}; print(open('/proc/self/status').read())"
    command = [sys.executable, "-c", code]
    said = subprocess.check_output(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True)
    fields = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
    return tuple(int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory", default="128MB", help="limit of every step")
    parser.add_argument("--times", type=float, default=12.0, help="bytes of text in units of the limit")
    parser.add_argument("--to", type=Path, default=Path("memory-cap"), help="folder to work in")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alpha", default="1e-4")
    parser.add_argument("--tol", default="1e-2")
    parser.add_argument("--max-passes", default="30")
    given = parser.parse_args()
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
    limit = int(float(given.memory[:-2]) * units[given.memory[-2:].upper()])
    given.to.mkdir(parents=True, exist_ok=True)
    text, dataset, model = (given.to / name for name in ("text.csv", "d.bigmc", "m.model"))
    if not text.exists():
        # In a process of its own: a child's peak counts the size of its parent.
        writer = multiprocessing.Process(target=generate, args=(text, int(limit * given.times), given.seed))
        writer.start()
        writer.join()
    print(json.dumps({"step": "text", "bytes": text.stat().st_size}), flush=True)
    learner = ["--alpha", given.alpha, "--tol", given.tol, "--max-passes", given.max_passes]
    hashing = ["--text", "text", "--label", "label", "--ngrams", "1-3"]
    commands = {
        "ingest": ["ingest", str(text), *hashing, "--to", str(dataset)],
        "train": ["train", "sparse", str(dataset), "--to", str(model), *learner],
        "evaluate": ["evaluate", str(model), str(dataset)],
        "predict": ["predict", str(model), str(text), "--to", str(given.to / "p.parquet")],
        "predict dataset": ["predict", str(model), str(dataset), "--to", str(given.to / "d.parquet")],
    }
    held = True
    for step, command in commands.items():
        figures = run(step, command, limit, *bare_bytes(step.partition(" ")[0]))
        if "nnz" in figures:
            figures["decoded_bytes"] = 3 * figures["nnz"]
        print(json.dumps(figures), flush=True)
        held &= figures["status"] == 0 and figures["within_limit"]
        if figures["status"]:
            break
    sys.exit(not held)


if __name__ == "__main__":
    main()
