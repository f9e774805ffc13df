# mypy: ignore-errors
"""Fast coordinate descent on the weights of one class's learners (Lin et al. 2012, equations 12, 16, 20, 21).

All learners of a class see the pairs (i, y) through one number per sample: ``t_i = sum_y mu_iy`` for the
samples of the class and ``t_i = mu_ic`` for the others. A learner pulls the pairs of sample ``i`` in the
right direction (in D+) if it is +1 on its own class or -1 elsewhere, in the wrong one (D-) in the
opposite cases, and leaves those alone where it abstains. `gather` makes t of the matrix u, the sweeps
work on t alone, `fold` brings the changes back.

Learners are kept as bits (one per sample; +1 or -1) or as lists of rows (1 there, 0 elsewhere). Bits are
turned into masks of vector instructions; sums are float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from bigmc.kernels.decorators import inner_kernel, kernel

LANES = 16
WORD = 64

_16, _32, _48 = np.uint64(16), np.uint64(32), np.uint64(48)


def _lanes(context, builder, kind, array, offset):
    """Return a pointer to `LANES` elements of a C-contiguous array, and the alignment of an element."""
    data = context.make_array(kind)(context, builder, array).data
    lanes = ir.VectorType(context.get_value_type(kind.dtype), LANES)
    return builder.bitcast(builder.gep(data, [offset]), lanes.as_pointer()), kind.dtype.bitwidth // 8


def _mask(builder, bits):
    """Return the lowest bits of a word as a mask."""
    return builder.bitcast(builder.trunc(bits, ir.IntType(LANES)), ir.VectorType(ir.IntType(1), LANES))


def _spread(builder, scalar):
    """Return a vector with the scalar in every lane."""
    lanes = ir.VectorType(scalar.type, LANES)
    index = ir.IntType(32)
    one = builder.insert_element(ir.Constant(lanes, ir.Undefined), scalar, index(0))
    places = ir.Constant(ir.VectorType(index, LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), places)


@intrinsic
def _split_lanes(typing, t, at, bits, sums):
    """``sums[:LANES] += t`` where the bit is set, ``sums[LANES:] += t`` where it is not."""
    signature = types.void(t, at, bits, sums)

    def generate(context, builder, signature, arguments):
        t, at, bits, sums = arguments
        kind, _, _, sums_kind = signature.args
        place, align = _lanes(context, builder, kind, t, at)
        terms = builder.load(place, align=align)
        wide = ir.VectorType(ir.DoubleType(), LANES)
        if terms.type != wide:
            terms = builder.fpext(terms, wide)
        mask, zero = _mask(builder, bits), ir.Constant(wide, [0.0] * LANES)
        for offset, part in (
            (0, builder.select(mask, terms, zero)),
            (LANES, builder.select(mask, zero, terms)),
        ):
            target, align = _lanes(context, builder, sums_kind, sums, ir.IntType(64)(offset))
            builder.store(builder.fadd(builder.load(target, align=align), part), target, align=align)
        return context.get_dummy_value()

    return signature, generate


def _pick_lanes(combine):
    """Return a generator of ``t = combine(t, a)`` where the bit is set and ``combine(t, b)`` elsewhere."""

    def generate(context, builder, signature, arguments):
        t, at, bits, set_value, clear_value = arguments
        place, align = _lanes(context, builder, signature.args[0], t, at)
        terms = builder.load(place, align=align)
        chosen = builder.select(
            _mask(builder, bits), _spread(builder, set_value), _spread(builder, clear_value)
        )
        builder.store(combine(builder)(terms, chosen), place, align=align)
        return context.get_dummy_value()

    return generate


@intrinsic
def _scale_lanes(typing, t, at, bits, set_value, clear_value):
    """Multiply `LANES` elements of t by one of two factors."""
    return types.void(t, at, bits, set_value, clear_value), _pick_lanes(lambda builder: builder.fmul)


@intrinsic
def add_lanes(typing, t, at, bits, set_value, clear_value):
    """Add one of two terms to `LANES` elements of t."""
    return types.void(t, at, bits, set_value, clear_value), _pick_lanes(lambda builder: builder.fadd)


@kernel
def solve_weight(plus, minus, r):
    """Minimise ``w + r (V- exp(w) + V+ exp(-w))`` over ``w >= 0`` (12), in a form that cannot cancel.

    ``V- = 0`` is a perfect learner, whose best weight is still finite: ``log(r V+)``.
    """
    if not r * (plus - minus) > 1.0:
        return 0.0
    q = 0.5 / r
    return np.log(plus) - np.log(q + np.sqrt(q * q + plus * minus))


@inner_kernel
def _bit_sums(words, own, flip, t, sums):
    """Return the sums of t over D+ and D- of a learner; `own` has the bits of the class's samples."""
    sums[:] = 0.0
    for w in range(words.shape[0]):
        # Equal bits: +1 on the own class or -1 elsewhere.
        right = ~(words[w] ^ own[w] ^ flip)
        at = np.int64(w) * WORD
        _split_lanes(t, at, right, sums)
        _split_lanes(t, at + 16, right >> _16, sums)
        _split_lanes(t, at + 32, right >> _32, sums)
        _split_lanes(t, at + 48, right >> _48, sums)
    plus, minus = 0.0, 0.0
    for k in range(LANES):
        plus += sums[k]
        minus += sums[LANES + k]
    return plus, minus


@inner_kernel
def _bit_scale(words, own, flip, up, t):
    """Multiply t by `up` in D- and divide it in D+ (20)."""
    in_plus, in_minus = t.dtype.type(1.0 / up), t.dtype.type(up)
    for w in range(words.shape[0]):
        right = ~(words[w] ^ own[w] ^ flip)
        at = np.int64(w) * WORD
        _scale_lanes(t, at, right, in_plus, in_minus)
        _scale_lanes(t, at + 16, right >> _16, in_plus, in_minus)
        _scale_lanes(t, at + 32, right >> _32, in_plus, in_minus)
        _scale_lanes(t, at + 48, right >> _48, in_plus, in_minus)


@inner_kernel
def _row_sums(rows, flip, labels, c, t):
    """Return the sums of t over D+ and D- of a learner that is 0 except on some rows."""
    mine, others = 0.0, 0.0
    for i in rows:
        if labels[i] == c:
            mine += np.float64(t[i])
        else:
            others += np.float64(t[i])
    return (others, mine) if flip else (mine, others)


@inner_kernel
def _row_scale(rows, flip, up, labels, c, t):
    """Multiply t by `up` in D- and divide it in D+ (20)."""
    in_plus, in_minus = t.dtype.type(1.0 / up), t.dtype.type(up)
    for i in rows:
        t[i] *= in_plus if (labels[i] == c) != flip else in_minus


class BitLearners(NamedTuple):
    """Learners of one class with their answers as bits, set for +1.

    `words`, of shape (n_slots, n_words), has the answers by slot; a sign of -1 means the opposite; `own`
    has the bits of the samples of the class.
    """

    words: NDArray[np.uint64]
    slots: NDArray[np.int64]
    signs: NDArray[np.int8]
    own: NDArray[np.uint64]


class RowLearners(NamedTuple):
    """Learners of class `c`, with the samples where each is 1; a sign of -1 means the opposite.

    Slot ``p`` has the samples ``rows[starts[p, 0]:starts[p, 1]]``.
    """

    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    slots: NDArray[np.int64]
    signs: NDArray[np.int8]
    labels: NDArray[np.int32]
    c: int


@inner_kernel
def _bit_pull(learners, j, t, sums):
    """Return the sums of t over D+ and D- of learner `j`."""
    flip = np.uint64(0) if learners.signs[j] > 0 else ~np.uint64(0)
    return _bit_sums(learners.words[learners.slots[j]], learners.own, flip, t, sums)


@inner_kernel
def _rows_of(learners, j):
    """Return the samples where learner `j` is 1."""
    slot = learners.slots[j]
    return learners.rows[learners.starts[slot, 0] : learners.starts[slot, 1]]


@kernel
def bit_scores(learners, r, t, out):
    """Write ``r (V+ - V-)`` of every learner at its present weight: the left side of its constraint (3b).

    `learners` is a `BitLearners`; `t` has the shape (64 * n_words,), `out` the shape (n_learners,).
    """
    sums = np.empty(2 * LANES)
    for j in range(learners.slots.shape[0]):
        plus, minus = _bit_pull(learners, j, t, sums)
        out[j] = r * (plus - minus)


@kernel
def row_scores(learners, r, t, out):
    """As `bit_scores`, for `RowLearners`."""
    for j in range(learners.slots.shape[0]):
        plus, minus = _row_sums(_rows_of(learners, j), learners.signs[j] < 0, learners.labels, learners.c, t)
        out[j] = r * (plus - minus)


@inner_kernel
def _violation(plus, minus, weight, r):
    """Return by how much a learner violates optimality (16)."""
    violation = r * (plus - minus) - 1.0
    return abs(violation) if weight > 0.0 else violation


@inner_kernel
def _new_weight(plus, minus, weight, visits):
    """Return the weight after the visit of a learner."""
    growth = np.exp(weight)
    return weight + visits.rate * (solve_weight(plus * growth, minus / growth, visits.r) - weight)


@kernel
def bit_sweep(learners, visits, t, weights):
    """Visit learners in the given order and set the weight of those that violate optimality (16).

    `visits` is a `Visits`; for `learners` and `t`, which is changed, see `bit_scores`; `weights`,
    float64, is changed. Returns the largest violation found, each at the moment of its turn.
    """
    sums = np.empty(2 * LANES)
    worst = 0.0
    for j in visits.order:
        plus, minus = _bit_pull(learners, j, t, sums)
        violation = _violation(plus, minus, weights[j], visits.r)
        worst = max(worst, violation)
        if violation <= visits.tolerance:
            continue
        new = _new_weight(plus, minus, weights[j], visits)
        if new != weights[j]:
            flip = np.uint64(0) if learners.signs[j] > 0 else ~np.uint64(0)
            words = learners.words[learners.slots[j]]
            _bit_scale(words, learners.own, flip, np.exp(new - weights[j]), t)
            weights[j] = new
    return worst


@kernel
def row_sweep(learners, visits, t, weights):
    """As `bit_sweep`, for `RowLearners`."""
    worst = 0.0
    labels, c = learners.labels, learners.c
    for j in visits.order:
        rows, flip = _rows_of(learners, j), learners.signs[j] < 0
        plus, minus = _row_sums(rows, flip, labels, c, t)
        violation = _violation(plus, minus, weights[j], visits.r)
        worst = max(worst, violation)
        if violation <= visits.tolerance:
            continue
        new = _new_weight(plus, minus, weights[j], visits)
        if new != weights[j]:
            _row_scale(rows, flip, np.exp(new - weights[j]), labels, c, t)
            weights[j] = new
    return worst


@kernel
def add_bit_learners(words, weighted, scores):
    """Add ``w h(x)`` of every learner to the scores of its class.

    `words`, uint64 of shape (n_slots, n_words), has only the current rows; `weighted` is a `Weighted`;
    `scores` is float64 of shape (n_classes, 64 * n_words).
    """
    for j in range(weighted.slots.shape[0]):
        row = words[weighted.slots[j]]
        target = scores[weighted.classes[j]]
        step = weighted.weights[j] * weighted.signs[j]
        for w in range(row.shape[0]):
            bits = row[w]
            at = np.int64(w) * WORD
            add_lanes(target, at, bits, step, -step)
            add_lanes(target, at + 16, bits >> _16, step, -step)
            add_lanes(target, at + 32, bits >> _32, step, -step)
            add_lanes(target, at + 48, bits >> _48, step, -step)


@kernel
def add_row_learners(starts, rows, weighted, first, scores):
    """As `add_bit_learners`, for increasing lists of rows; `first` is the first of the current rows."""
    stop = first + scores.shape[1]
    for j in range(weighted.slots.shape[0]):
        slot = weighted.slots[j]
        own = rows[starts[slot, 0] : starts[slot, 1]]
        target = scores[weighted.classes[j]]
        step = weighted.weights[j] * weighted.signs[j]
        for k in range(np.searchsorted(own, first), own.shape[0]):
            if own[k] >= stop:
                break
            target[own[k] - first] += step
