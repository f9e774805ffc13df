"""One process that compiles kernels for all workers of a test run.

Each worker's own would compile again what kernels have in common, which took some CPU minutes.
"""

import gc
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from bigmc.kernels.compile_server import GARBAGE_OBJECTS, compile_kernel

_KEY = b"tests"


class SharedCompiler:
    """The process; it ends with the one that started it."""

    def __init__(self) -> None:
        self.address = str(Path(tempfile.mkdtemp(prefix="bigmc-compile-")) / "socket")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-P", __file__, self.address]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._process.stdout.readline()  # it listens


def asking(address: str):
    """Return what asks the process at an address."""
    connection, owner = Client(address, authkey=_KEY), os.getpid()

    def ask(request: bytes) -> bool:
        if os.getpid() != owner:  # a fork must not take its parent's answers
            return False
        connection.send_bytes(request)
        return bool(connection.recv())

    return ask


def _answer(connection: Connection) -> None:
    while True:
        try:
            request = connection.recv_bytes()
        except EOFError:
            return
        try:
            compile_kernel(*pickle.loads(request))
        except Exception:  # the worker compiles it itself, and raises the error
            connection.send(False)
        else:
            connection.send(True)


def _listen(listener: Listener) -> None:
    while True:
        threading.Thread(target=_answer, args=(listener.accept(),), daemon=True).start()


if __name__ == "__main__":
    gc.freeze()
    gc.set_threshold(*GARBAGE_OBJECTS)
    threading.Thread(target=_listen, args=(Listener(sys.argv[1], authkey=_KEY),), daemon=True).start()
    print("listening", flush=True)
    sys.stdin.read()  # until the test run has ended
    os._exit(0)
