"""End a command early: on Ctrl-C, on SIGTERM from a scheduler, or when its output pipe is closed."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
"""Signals that end a command, and how the message names them."""

_stopping = threading.RLock()
"""Never released: the main thread and the watching one may both come to stop the process."""
_begun: list[int] = []
"""The signal that is being obeyed."""


def hold_closed_streams() -> None:
    """Let standard streams that are closed (``>&-``) lead nowhere.

    The next files to be opened would take their numbers, and output meant for a terminal would end in them.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """End the process with a message and the exit code 128 + signal when one of `STOPS` comes.

    It ends at once, as if killed: waiting for running work could take minutes. Finished work and
    checkpoints are on disk, so the same command resumes. Python writes the signal's number into a socket that
    a separate thread reads, since the main thread may be in compiled code for a long time, where
    Python runs no handler. A handler also lets SIGTERM reach the first process of a container, for
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
    """End the process silently, as SIGPIPE would, when the reader of its output is gone: ``| head``.

    Python ignores that signal, which would also end the process on a lost connection, and raises an error.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os._exit(128 + signal.SIGPIPE)  # do not try again to flush the rest


def _watch(numbers: socket.socket) -> None:
    with numbers:
        while signal_number := numbers.recv(1):
            if signal_number[0] in STOPS:
                _stop(signal_number[0])


def _handle(number: int, frame: FrameType | None) -> None:
    _stop(number)


def _stop(number: int) -> None:
    """End the process, or return to what is already ending it on this thread.

    `timeout` sends its signal twice, to the process and to its group. Python handles the second one in the
    main thread between any two steps of the first one's handler, which must not wait for itself.
    """
    _stopping.acquire()
    if _begun:
        return
    _begun.append(number)
    try:
        shown_again = "\x1b[?25h\n" if sys.stderr.isatty() else ""  # a progress bar hides the cursor
        reason = STOPS[signal.Signals(number)]
        said = f"{shown_again}bigmc: {reason}; the same command resumes where it stopped\n"
        if select.select([], [2], [], 0)[1]:  # else the pipe is full, and its reader may have stopped
            os.write(2, said.encode())
    finally:  # the signal may have ended the reader as well, and then writing is an error
        os._exit(128 + number)
