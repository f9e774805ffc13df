"""Several processes at once: on one target, readers beside writers, locks of the dead, an object store."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bigmc.errors import BusyError
from bigmc.store.files import disk
from bigmc.store.files.atomic import exclusive
from faults.commands import COMMANDS, Command
from faults.damage import dataset_digest
from faults.recorder import contents
from faults.trials import EXPECTED, Outcome, again, differences, record

FINE, BUSY, WRONG = 0, 3, 4

CALLS_OF_STORE = {"create": 1, "send": 2, "read": 2, "sizes": 2}
"""Calls to an object store, and at how many of each kind an ingest is killed."""


def in_child(work: Callable[[], object]) -> int:
    """Run something in a forked process and return its process id; it ends with one of the codes above."""
    pid = os.fork()
    if pid:
        return pid
    code = WRONG
    try:
        work()
        code = FINE
    except BusyError:
        code = BUSY
    except BaseException as error:
        print(f"    in a child: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def at_once(command: Command, inputs: Path, work: Path, n_processes: int) -> Outcome:
    """Run a command in so many processes on one target: each completes it or is told that it is busy."""
    found = record(command, inputs, work)
    outcome = Outcome(f"{command.name}, {n_processes} at once", "together", 1, 1)
    folder = work / f"at-once-{n_processes}"
    folder.mkdir()
    command.start(inputs, folder)
    pids = [in_child(lambda: command.run(inputs, folder)) for _ in range(n_processes)]
    codes = [code_of(pid) for pid in pids]
    if set(codes) - {FINE, BUSY} or FINE not in codes:
        outcome.problems.append(f"the processes ended with {codes}")
    problem = again(command, inputs, folder, found.made)
    if problem:
        outcome.problems.append(problem)
    return outcome


def killed_holding_a_lock(command: Command, inputs: Path, work: Path, each: int = 6) -> Outcome:
    """Kill a real process at some of its calls; its lock is free for the next one."""
    found = record(command, inputs, work)
    outcome = Outcome(f"{command.name}, SIGKILL", "together")
    for number in range(each):
        at = 1 + number * len(found.log) // each
        outcome.trials += 1
        outcome.different += 1
        with tempfile.TemporaryDirectory(dir=work) as name:
            folder = Path(name) / "target"
            folder.mkdir()
            command.start(inputs, folder)
            code = code_of(in_child(partial(_until, at, partial(command.run, inputs, folder))))
            if code != -signal.SIGKILL:
                outcome.problems.append(f"call {at}: the process ended with {code}")
            problem = again(command, inputs, folder, found.made)
            if problem:
                outcome.problems.append(f"call {at}: {problem}")
    return outcome


def _until(at: int, work: Callable[[], object]) -> None:
    class Deadly(disk.SystemCalls):
        seen = 0

        def __getattribute__(self, name):
            if not name.startswith("_") and name != "seen":
                self.seen += 1
                if self.seen == at:
                    os.kill(os.getpid(), signal.SIGKILL)
            return super().__getattribute__(name)

    disk.calls = Deadly()
    work()


def read_while_appending(inputs: Path, work: Path) -> Outcome:
    """Open and read a dataset again and again while rows are appended: it is that of before or after."""
    command = next(c for c in COMMANDS if c.name == "append")
    outcome = Outcome("reader beside append", "together")
    folder = work / "reading"
    folder.mkdir()
    command.start(inputs, folder)
    allowed = {dataset_digest(folder / "d.bigmc")}
    pid = in_child(lambda: command.run(inputs, folder))
    seen = []
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        outcome.trials += 1
        try:
            seen.append(dataset_digest(folder / "d.bigmc"))
        except EXPECTED as error:
            outcome.problems.append(str(error))
    allowed.add(dataset_digest(folder / "d.bigmc"))
    if set(seen) - allowed:
        outcome.problems.append("a reader saw a dataset that never was")
    outcome.different = len(set(seen))
    return outcome


def read_while_publishing(inputs: Path, work: Path) -> Outcome:
    """Read a public model while it is replaced again and again: it is always one of the two, whole."""
    from bigmc.store.files.atomic import write_atomic

    outcome = Outcome("reader beside publish", "together")
    versions = [(inputs / name).read_bytes() for name in ("s.model", "b.model")]
    target = work / "public.model"
    target.write_bytes(versions[0])

    def publish() -> None:
        for number in range(200):
            write_atomic(target, versions[number % 2])

    pid = in_child(publish)
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        outcome.trials += 1
        if target.read_bytes() not in versions:
            outcome.problems.append("a reader saw a part of a model")
    outcome.different = min(outcome.trials, 2)
    return outcome


def dead_locks(work: Path) -> Outcome:
    """Take the lock of a process that was killed with it."""
    outcome = Outcome("locks of the dead", "together", 1, 1)
    lock = work / "dead" / "lock"

    def hold() -> None:
        with exclusive(lock):
            os.kill(os.getpid(), signal.SIGKILL)

    code_of(in_child(hold))
    try:
        with exclusive(lock):
            pass
    except BusyError as error:
        outcome.problems.append(str(error))
    return outcome


def leftovers_of_the_living(work: Path) -> Outcome:
    """A second writer of a file does not remove what the first, alive, is writing aside."""
    from bigmc.store.files.atomic import replacing, write_atomic

    outcome = Outcome("two writers of one file", "together", 1, 1)
    folder = work / "writers"
    folder.mkdir()
    with replacing(folder / "f") as first:
        first.write(b"first")
        write_atomic(folder / "f", b"second")
    if contents(folder) != {"./f": b"first"}:
        outcome.problems.append(f"left {sorted(contents(folder))}")
    return outcome


def in_object_store(call: str, inputs: Path, work: Path, url: str) -> Outcome:
    """Kill an ingest into an object store at its first calls of a kind, lose answers, and run it again."""
    from bigmc import api
    from bigmc.store.files.object_store import Address
    from faults.commands import TEXT

    outcome = Outcome("ingest into S3", "object store")
    options = {"split": {"train": 0.6, "test": 0.4}, **TEXT}

    def ingest(name: str) -> None:
        api.ingest(inputs / "rows.csv", f"{url}/{name}.bigmc", **options)

    def objects(name: str) -> dict[str, str]:
        address = Address(f"{url}/{name}.bigmc")
        return {path: address.digest(path) for path in address.sizes("")}

    ingest("whole")
    right = objects("whole")
    for at in range(1, CALLS_OF_STORE[call] + 1):
        for moment in ("before", "after", "answer lost"):
            name = f"{call}-{at}-{moment[0]}"
            outcome.trials += 1
            outcome.different += 1
            interrupted = partial(_break, Address, call, at, moment, partial(ingest, name))
            code = code_of(in_child(interrupted))
            if code not in (FINE, -signal.SIGKILL, 5):
                outcome.problems.append(f"{name}: the process ended with {code}")
            try:
                ingest(name)
                problem = differences(objects(name), right)  # type: ignore[arg-type]
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem:
                outcome.problems.append(f"{name}: {problem}")
    return outcome


def _break(owner, name: str, at: int, moment: str, work: Callable[[], object]) -> None:
    plain, seen = getattr(owner, name), [0]

    def call(*args, **kwargs):
        seen[0] += 1
        if seen[0] == at and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = plain(*args, **kwargs)
        if seen[0] == at and moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        if seen[0] == at:
            raise OSError("the connection was lost")
        return answer

    setattr(owner, name, call)
    try:
        work()
    except EXPECTED:
        os._exit(5)


def in_a_lost_answer(inputs: Path, work: Path, url: str) -> Outcome:
    """Let the commit of an ingest land and its answer be lost: the client asks again and is refused."""
    from aiobotocore.httpsession import AIOHTTPSession
    from botocore.exceptions import ConnectionClosedError

    from bigmc import api
    from bigmc.store.dataset import Dataset
    from faults.commands import TEXT

    outcome, plain = Outcome("commit whose answer is lost", "object store"), AIOHTTPSession.send
    right = dataset_digest(inputs / "d.bigmc")
    for n_lost in (1, 2):
        lost = 0

        async def send(session, request, n_lost=n_lost):
            nonlocal lost
            answer = await plain(session, request)
            if "If-None-Match" in request.headers and lost < n_lost:
                lost += 1
                raise ConnectionClosedError(endpoint_url=request.url)
            return answer

        AIOHTTPSession.send = send
        try:
            options = {"split": {"train": 0.6, "test": 0.4}, **TEXT}
            api.ingest(inputs / "rows.csv", f"{url}/lost-{n_lost}.bigmc", **options)
        finally:
            AIOHTTPSession.send = plain
        outcome.trials += 1
        outcome.different += 1
        if lost != n_lost:
            outcome.problems.append(f"{lost} answers of {n_lost} were lost")
        if dataset_digest(f"{url}/lost-{n_lost}.bigmc") != right:
            outcome.problems.append("another dataset")
        Dataset.open(f"{url}/lost-{n_lost}.bigmc")
    return outcome


def cache_evicted(inputs: Path, work: Path, url: str) -> Outcome:
    """Read datasets of a store in several processes whose cache has space for none of them."""
    from bigmc import api

    outcome = Outcome("cache evicted while read", "object store")
    os.environ |= {"BIGMC_CACHE_SIZE": "1KB"}
    right = {}
    for number, name in enumerate(("rows.csv", "more.csv", "numbers.csv")):
        to = f"{url}/evicted-{number}.bigmc"
        columns = {"text": "text", "hash_bits": 6} if name != "numbers.csv" else {"dense": ["a", "b", "c"]}
        api.ingest(inputs / name, to, label="label", on_bad_row="quarantine", memory_limit="64MB", **columns)
        right[to] = dataset_digest(to)

    def read(process: int) -> None:
        addresses = [*right]
        for turn in range(12):
            address = addresses[(turn + process) % len(addresses)]
            if dataset_digest(address) != right[address]:
                raise AssertionError(f"another answer of {address}")

    pids = [in_child(partial(read, process)) for process in range(4)]
    codes = [code_of(pid) for pid in pids]
    outcome.trials, outcome.different = 12 * len(pids), len(pids)
    if set(codes) != {FINE}:
        outcome.problems.append(f"the processes ended with {codes}")
    return outcome


Trial = Callable[[Path, Path], Outcome]


def all_trials() -> Iterator[tuple[str, Trial]]:
    """Yield a name and a function of inputs and a folder for each kind of trial."""
    for command in COMMANDS:
        for n_processes in (2, 8):
            yield f"{command.name} by {n_processes}", partial(at_once, command, n_processes=n_processes)
        yield f"{command.name} killed", partial(killed_holding_a_lock, command)
    yield "reader beside append", read_while_appending
    yield "reader beside publish", read_while_publishing
    yield "locks of the dead", lambda inputs, work: dead_locks(work)
    yield "two writers", lambda inputs, work: leftovers_of_the_living(work)
    for call in CALLS_OF_STORE:
        yield f"ingest into S3, {call}", partial(_with_moto, partial(in_object_store, call))
    for name, trial in (
        ("lost answer", in_a_lost_answer),
        ("cache evicted", cache_evicted),
    ):
        yield name, partial(_with_moto, trial)


def _with_moto(trial: Callable[[Path, Path, str], Outcome], inputs: Path, work: Path) -> Outcome:
    """Run a trial against an object store on this machine."""
    try:
        import s3fs  # noqa: F401
        from s3_server import s3_server
    except ImportError:
        return Outcome("S3 is left out: moto or s3fs is not installed", "object store")
    from bigmc.store.files.object_store import Address

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with s3_server() as server:
        os.environ |= {
            "AWS_ENDPOINT_URL": server,
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "BIGMC_CACHE": str(work / "cache"),
        }
        with Address(f"s3://faults{int(time.time())}").file_system() as (fs, path):
            fs.mkdir(path)
        return trial(inputs, work, f"s3://{path}")
