"""How a command ends before its work is done: Ctrl-C, SIGTERM from a scheduler, a pipe nobody reads."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

STOPS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
"""Signals that end a command, and the word for it."""

_saying = threading.Lock()


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """End the process with a message and the exit code 128 + signal when one of `STOPS` comes.

    It ends at once, as if killed: waiting for what is running could take minutes. Finished work and
    checkpoints are on disk, so that the same command continues. The signal's number is written into a socket
    that a thread of its own reads, since the main thread may be in compiled code for a long time, where
    Python runs no handler. Having a handler also lets SIGTERM reach the first process of a container, for
    which the system otherwise ignores it.
    """
    numbers, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    threading.Thread(target=_watch, args=(numbers,), name="bigmc-signals", daemon=True).start()
    before = {number: signal.signal(number, _handle) for number in STOPS}
    wakeup_before = signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        wakeup.close()  # which ends the thread


@contextmanager
def stopped_by_closed_pipe() -> Iterator[None]:
    """End the process, without a word, as SIGPIPE would when nobody reads its output any more: ``| head``.

    Python ignores that signal, since a lost connection would end the process too, and raises an error.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os._exit(128 + signal.SIGPIPE)  # what could not be written is not tried again


def _watch(numbers: socket.socket) -> None:
    with numbers:
        while signal_number := numbers.recv(1):
            if signal_number[0] in STOPS:
                _stop(signal_number[0])


def _handle(number: int, frame: FrameType | None) -> None:
    _stop(number)


def _stop(number: int) -> NoReturn:
    _saying.acquire()  # never released: the main thread and the watching one may both get here
    shown_again = "\x1b[?25h\n" if sys.stderr.isatty() else ""  # a progress bar hides the cursor
    reason = STOPS[signal.Signals(number)]
    os.write(2, f"{shown_again}bigmc: {reason}; the same command continues where it stopped\n".encode())
    os._exit(128 + number)
