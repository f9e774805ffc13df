"""Ctrl-C and SIGTERM end a command at once, with a message and an exit code; the same command continues."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bigmc

pytestmark = pytest.mark.slow

ENV = {**os.environ, "PYTHONPATH": str(Path(bigmc.__file__).parents[1])}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Return a file that takes some seconds to ingest."""
    source = tmp_path_factory.mktemp("signals") / "rows.csv"
    lines = (f"{' '.join(f'w{i * k % 9973}' for k in range(1, 40))},{i % 3}\n" for i in range(60_000))
    source.write_text("text,label\n" + "".join(lines))
    return source


def command(rows: Path, to: Path) -> list[str]:
    more = ["--text", "text", "--label", "label", "--ngrams", "1-3", "--threads", "1"]
    return [sys.executable, "-m", "bigmc", "ingest", str(rows), "--to", str(to), *more]


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_signal_ends_a_command_with_a_message(number, word, rows, tmp_path):
    process = subprocess.Popen(command(rows, tmp_path / "d"), env=ENV, stderr=subprocess.PIPE, text=True)
    process.stderr.readline()
    process.send_signal(number)
    said = process.stderr.read()
    assert process.wait() == 128 + number
    assert said.splitlines()[-1] == f"bigmc: {word}; the same command resumes where it stopped"
    assert not (tmp_path / "d" / "manifest.json").exists()


def _namespaces() -> bool:
    unshare = shutil.which("unshare")
    return unshare is not None and not subprocess.run([unshare, "-pf", "true"], check=False).returncode


@pytest.mark.skipif(not _namespaces(), reason="no process namespaces")
def test_sigterm_reaches_the_first_process_of_a_container(rows, tmp_path):
    words = ["unshare", "-pf", "--kill-child", *command(rows, tmp_path / "d")]
    process = subprocess.Popen(words, env=ENV, stderr=subprocess.PIPE, text=True)
    process.stderr.readline()
    [first] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(first), signal.SIGTERM)
    said = process.stderr.read()
    assert process.wait() == 143
    assert said.splitlines()[-1].startswith("bigmc: terminated")


IN_COMPILED_CODE = """
import hashlib
from bigmc.cli.interrupt import stopped_by_signals
with stopped_by_signals():
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # minutes without a bytecode
"""


def test_a_signal_ends_a_command_whose_main_thread_is_in_compiled_code():
    with subprocess.Popen(
        [sys.executable, "-c", IN_COMPILED_CODE], env=ENV, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(30) == 143
        finally:
            process.kill()


TWICE = """
import os
import signal
from bigmc.cli.interrupt import stopped_by_signals
write = os.write
def write_and_receive_another(*arguments):
    os.write = write
    signal.raise_signal(signal.SIGINT)
    return write(*arguments)
os.write = write_and_receive_another
with stopped_by_signals():
    signal.raise_signal(signal.SIGTERM)
"""


def test_a_signal_in_the_middle_of_another_one_does_not_keep_the_process():
    """`timeout` sends its signal twice: in 3 of 40 runs the process waited for itself."""
    done = subprocess.run(
        [sys.executable, "-c", TWICE], env=ENV, stderr=subprocess.PIPE, text=True, timeout=60
    )
    assert done.returncode == 143
    assert done.stderr == "bigmc: terminated; the same command resumes where it stopped\n"


WITHOUT_READER = """
import os
import signal
import time
from bigmc.cli.interrupt import stopped_by_signals
with stopped_by_signals():
    {pipe}
    signal.raise_signal(signal.SIGTERM)
    time.sleep(600)
"""
CLOSED = "reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 2)"
FULL = "reader, writer = os.pipe(); os.dup2(writer, 2); os.write(2, bytes(1 << 16))"


@pytest.mark.parametrize("pipe", [CLOSED, FULL], ids=["closed", "full"])
def test_a_signal_ends_a_command_whose_messages_nobody_reads(pipe):
    """One that ended `2>&1 | tee` as well let the process wait for ever."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_READER.format(pipe=pipe)], env=ENV, timeout=60)
    assert done.returncode == 143
