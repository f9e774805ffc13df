# mypy: ignore-errors
"""Threads that share the work on one column, with sums that are the same for any number of them.

Coordinate descent goes from column to column, so that threads cannot share out the columns. One thread, the
leader, takes the steps. What it must do with the entries of a long column is cut into pieces, whose number
follows from the column alone; it offers them on a board and does them from the first on, while assistants
take them from the last on. A piece has sums of its own, which are added up in the order of the pieces.

Only a piece that was begun is waited for: a leader whom nobody assists, because the engine has one thread or
the processors are taken, does everything itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from bigmc.kernels.decorators import inlined_kernel, inner_kernel, kernel
from bigmc.kernels.linear.parallel.atomics import atomic_add, atomic_load, atomic_replace, atomic_store

#: What can be done with the entries of a column. These and the constants below are NumPy's integers, as numba
#: compiles a function once more for each Python integer that a caller gives it as a constant.
GRADIENT, CURVATURE, HESSIAN, CHANGE, MOVE = np.arange(5)
#: All of a column, as a piece: number, and number of pieces.
WHOLE = (np.int64(0), np.int64(1))
#: A column is cut into so many pieces, at most, and where each has a matrix, whose sum takes time.
MOST_PIECES, MOST_MATRICES = 4, 2
#: Numbers of the scores that a piece looks at, at least: some microseconds.
_PIECE = 4096
#: Up to so many classes a piece has a matrix.
MATRIX_CLASSES = 128
_SUMS, _NUMBERS = 6, 3

#: The board: pieces that are left, how many are done, and on a cache line of their own what is to be done,
#: with which column, in how many pieces.
_LEFT, _DONE, _TASK, _COLUMN, _PIECES = 0, 8, 16, 17, 18
_BOARD = 24
#: Pieces that are left are one number: the first of them times this, and the one after the last.
_UNIT = 1 << 16
_CLOSED, _NONE = -1, -1
#: Looks at the board before the processor is offered to others.
_LOOKS = 1000

_offer_processor = types.ExternalFunction("sched_yield", types.int32())


class Crew(NamedTuple):
    """What the threads of a team share.

    Attributes
    ----------
    board : int64 array
    sums : float64 array of shape (pieces, 6, width)
    matrices : float64 array of shape (pieces, n_classes, width)
        Without rows where there are more than `MATRIX_CLASSES`.
    changes : float64 array of shape (pieces, 1)
    numbers : array of shape (pieces, 3, width), of the type of the scores
    trial : float64 array of shape (width,)
        Step whose change of the loss is asked for.
    step : array of shape (width,), of the type of the scores
        Step that joins the scores.
    """

    board: NDArray[np.int64]
    sums: NDArray[np.float64]
    matrices: NDArray[np.float64]
    changes: NDArray[np.float64]
    numbers: NDArray[Any]
    trial: NDArray[np.float64]
    step: NDArray[Any]

    @classmethod
    def of(cls, dtype: np.dtype[Any], width: int, n_classes: int) -> Crew:
        """Return what is shared for scores of a type, classes padded to a width or not."""
        size = n_classes if n_classes <= MATRIX_CLASSES else 0
        return cls(
            np.zeros(_BOARD, np.int64),
            np.zeros((MOST_PIECES, _SUMS, width)),
            np.zeros((MOST_MATRICES, size, width)),
            np.zeros((MOST_PIECES, 1)),
            np.zeros((MOST_PIECES, _NUMBERS, width), dtype),
            np.zeros(width),
            np.zeros(width, dtype),
        )


def _by_work(function):
    """Let calls of a function in kernels be calls of the method of its name of the work's type."""

    @overload(function, strict=False, jit_options={"nogil": True, "fastmath": False})
    def choose(work, *arguments):
        return getattr(work.instance_class, function.__name__)

    return function


@_by_work
def sums_of(work, number):
    """Return what piece `number` fills; pieces of a matrix only where there is one."""


@_by_work
def do_piece(work, task, column, piece, sums):
    """Do a task for a piece, (number, number of pieces), of a column; fills `sums`."""


@_by_work
def add_sums(work, task, sums, others):
    """Add the sums of another piece."""


@inlined_kernel
def piece_of(indptr, s, column, piece):
    """Return where the entries of a piece of a column begin and end in shard s."""
    start, (number, n_pieces) = indptr[s, column], piece
    if n_pieces == 1:  # the same without divisions
        return np.uint64(start), np.uint64(indptr[s, column + 1])
    size = indptr[s, column + 1] - start
    return np.uint64(start + size * number // n_pieces), np.uint64(start + size * (number + 1) // n_pieces)


def least_shared(width: int) -> int:
    """Return the number of entries from which on a column is cut into pieces, for scores of a width."""
    return -(-2 * _PIECE // width)


@inlined_kernel
def count_entries(column, entries):
    """Return how many entries a column has."""
    count = 0
    for s in range(entries.indptr.shape[0]):
        count += entries.indptr[s, column + 1] - entries.indptr[s, column]
    return count


@inner_kernel
def together(work, task, column, sums):
    """Do a task with all entries of a column, with whoever assists where these are many.

    Parameters
    ----------
    work : NamedTuple
        Of a type with the methods `sums_of`, `do_piece` and `add_sums`, and columns, samples and a crew.
    task : int
    column : int
        Of the block.
    sums
        Those of piece 0, which are in the end those of the column.
    """
    n_entries = count_entries(column, work.columns.entries)
    n_pieces = n_entries * work.samples.scores.shape[1] // _PIECE
    if n_pieces < 2:
        do_piece(work, task, column, WHOLE, sums)
    else:
        _share_out(work, task, column, min(n_pieces, MOST_MATRICES if task == HESSIAN else MOST_PIECES), sums)


@inner_kernel
def _share_out(work, task, column, n_pieces, sums):
    """Do a task in pieces, with whoever assists."""
    board = work.crew.board
    board[_TASK], board[_COLUMN], board[_PIECES] = task, column, n_pieces
    atomic_store(board, _DONE, 0)
    atomic_store(board, _LEFT, n_pieces)
    while True:
        number = _take_first(board)
        if number == _NONE:
            break
        do_piece(work, task, column, (number, n_pieces), sums_of(work, number))
        atomic_add(board, _DONE, 1)
    looks = 0
    while atomic_load(board, _DONE) < n_pieces:
        looks = _look_again(looks)
    if task != MOVE:
        for number in range(1, n_pieces):
            add_sums(work, task, sums, sums_of(work, number))


@kernel
def assist(work):
    """Take pieces until the board is closed."""
    board, looks = work.crew.board, 0
    while True:
        left = atomic_load(board, _LEFT)
        if left == _CLOSED:
            return
        stop = left % _UNIT
        if left // _UNIT < stop and atomic_replace(board, _LEFT, left, left - 1):
            number, looks = stop - 1, 0
            sums = sums_of(work, number)
            do_piece(work, board[_TASK], board[_COLUMN], (number, board[_PIECES]), sums)
            atomic_add(board, _DONE, 1)
        else:
            looks = _look_again(looks)


@kernel
def close(board):
    """Let assistants go."""
    atomic_store(board, _LEFT, _CLOSED)


@inlined_kernel
def _take_first(board):
    """Take the first piece that is left; returns its number."""
    while True:
        left = atomic_load(board, _LEFT)
        if left // _UNIT >= left % _UNIT:
            return _NONE
        if atomic_replace(board, _LEFT, left, left + _UNIT):
            return left // _UNIT


@inlined_kernel
def _look_again(looks):
    """Count a look at the board; after many of them the processor is offered to others."""
    if looks % _LOOKS == _LOOKS - 1:
        _offer_processor()
    return looks + 1
