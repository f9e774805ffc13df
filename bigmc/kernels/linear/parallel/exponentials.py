# mypy: ignore-errors
"""Exponentials of groups of classes, as functions that kernels call.

A scalar exponential costs as much as these vector instructions for `LANES` classes. With ``x = k ln 2
+ f``, k the nearest integer, ``exp(x) = 2^k (1 + expm1(f))``; the Taylor series of ``expm1(f)`` on ``|f| <=
ln(2) / 2`` is cut where its terms are below the rounding error of f.
"""

from __future__ import annotations

import math
from decimal import Decimal

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigmc.kernels.linear.parallel.simd import LANES, accumulate, load, pointer, spread, total

#: By precision: terms of the series, bits of the first part of ln 2 (few, so that its product with k is
#: exact), bits of the mantissa, bias of the exponent, and the x between which the power of two is normal.
_SINGLE = (8, 12, 23, 127, -87.0, 88.0)
_DOUBLE = (13, 32, 52, 1023, -708.0, 700.0)
#: The sum of a sample's exponentials shrinks to no less than 1 plus this of itself in a step; below, the
#: probability of the label is lost in rounding.
LARGEST_FALL = -1.0 + 1e-15


def _constant(vector, value):
    return ir.Constant(vector, [value] * LANES)


def _clamped(builder, x, low, high):
    """Return x between two numbers; NaN stays NaN."""
    low, high = _constant(x.type, low), _constant(x.type, high)
    x = builder.select(builder.fcmp_ordered("<", x, low), low, x)
    return builder.select(builder.fcmp_ordered(">", x, high), high, x)


def _powers(builder, x):
    """Return ``2^k`` and ``expm1(f)`` for x within the bounds of its precision."""
    single = isinstance(x.type.element, ir.FloatType)
    n_terms, n_bits, mantissa, bias, _, _ = _SINGLE if single else _DOUBLE
    bits = ir.VectorType(ir.IntType(32 if single else 64), LANES)
    first = round(math.log(2.0) * 2.0**n_bits) / 2.0**n_bits
    rest = float(Decimal(2).ln() - Decimal(first))
    name = f"llvm.rint.v{LANES}f{32 if single else 64}"
    rint = cgutils.get_or_insert_function(builder.module, ir.FunctionType(x.type, [x.type]), name)
    k = builder.call(rint, [builder.fmul(x, _constant(x.type, 1.0 / math.log(2.0)))])
    f = builder.fsub(x, builder.fmul(k, _constant(x.type, first)))
    f = builder.fsub(f, builder.fmul(k, _constant(x.type, rest)))
    series = _constant(x.type, 1.0 / math.factorial(n_terms))
    for power in range(n_terms - 1, 1, -1):
        series = builder.fadd(builder.fmul(series, f), _constant(x.type, 1.0 / math.factorial(power)))
    expm1 = builder.fadd(f, builder.fmul(builder.fmul(f, f), series))
    # 32 bits hold k, and there are instructions to convert both precisions to them
    whole = builder.fptosi(k, ir.VectorType(ir.IntType(32), LANES))
    if not single:
        whole = builder.sext(whole, bits)
    exponent = builder.shl(builder.add(whole, _constant(bits, bias)), _constant(bits, mantissa))
    return builder.bitcast(exponent, x.type), expm1


@intrinsic
def lanes_largest(typing, scores, at):
    """Return the largest of ``scores[at:]``."""
    signature = scores.dtype(scores, at)

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        row = load(builder, pointer(context, builder, kind, *arguments), kind)
        element = row.type.element
        name = f"llvm.vector.reduce.fmax.v{LANES}f{32 if isinstance(element, ir.FloatType) else 64}"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(element, [row.type]), name)
        return builder.call(function, [row])

    return signature, generate


@intrinsic
def lanes_exp(typing, scores, at, shift, into, to):
    """``into[to:] = exp(scores[at:] - shift)``, for differences of at most 0; returns their sum.

    What is below 1e-37 (1e-307 in double precision) is 0.
    """
    signature = scores.dtype(scores, at, shift, into, to)

    def generate(context, builder, signature, arguments):
        scores, at, shift, into, to = arguments
        kind, _, _, into_kind, _ = signature.args
        x = load(builder, pointer(context, builder, kind, scores, at), kind)
        x = builder.fsub(x, spread(builder, shift))
        *_, low, high = _SINGLE if isinstance(x.type.element, ir.FloatType) else _DOUBLE
        power, expm1 = _powers(builder, _clamped(builder, x, low, high))
        exponentials = builder.fadd(power, builder.fmul(power, expm1))
        exponentials = builder.select(
            builder.fcmp_ordered("<", x, _constant(x.type, low)), _constant(x.type, 0.0), exponentials
        )
        target = pointer(context, builder, into_kind, into, to)
        builder.store(exponentials, target, align=into_kind.dtype.bitwidth // 8)
        return total(builder, exponentials)

    return signature, generate


@intrinsic
def lanes_growth(typing, shares, at, value, step, step_at, own_step):
    """Sum of ``shares[at:] * expm1(value (step[step_at:] - own_step))``, in double precision.

    Shares of any precision; the step is float64. Growth beyond 1e304 counts as that: sums stay finite.
    """
    signature = types.float64(shares, at, value, step, step_at, own_step)

    def generate(context, builder, signature, arguments):
        shares, at, value, step, step_at, own_step = arguments
        kind, _, _, step_kind, _, _ = signature.args
        share = load(builder, pointer(context, builder, kind, shares, at), kind)
        x = load(builder, pointer(context, builder, step_kind, step, step_at), step_kind)
        if share.type != x.type:
            share = builder.fpext(share, x.type)
        x = builder.fmul(builder.fsub(x, spread(builder, own_step)), spread(builder, value))
        power, expm1 = _powers(builder, _clamped(builder, x, *_DOUBLE[-2:]))
        growth = builder.fadd(builder.fmul(power, expm1), builder.fsub(power, _constant(x.type, 1.0)))
        return total(builder, builder.fmul(share, growth))

    return signature, generate


@intrinsic
def lanes_hessian(typing, shares, at, factor, moves, mean, to):
    """``moves[to:] = factor * shares[at:] * (moves[to:] - mean)``."""
    signature = types.void(shares, at, factor, moves, mean, to)

    def generate(context, builder, signature, arguments):
        shares, at, factor, moves, mean, to = arguments
        kind, _, _, moves_kind, _, _ = signature.args
        share = load(builder, pointer(context, builder, kind, shares, at), kind)
        target = pointer(context, builder, moves_kind, moves, to)
        move = builder.fsub(load(builder, target, moves_kind), spread(builder, mean))
        move = builder.fmul(builder.fmul(share, spread(builder, factor)), move)
        builder.store(move, target, align=moves_kind.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def lanes_dot(typing, shares, at, moves, to):
    """Sum of ``shares[at:] * moves[to:]``, which have one precision."""
    signature = shares.dtype(shares, at, moves, to)

    def generate(context, builder, signature, arguments):
        shares, at, moves, to = arguments
        kind, _, moves_kind, _ = signature.args
        share = load(builder, pointer(context, builder, kind, shares, at), kind)
        move = load(builder, pointer(context, builder, moves_kind, moves, to), moves_kind)
        return total(builder, builder.fmul(share, move))

    return signature, generate


@intrinsic
def lanes_curve(typing, residuals, at, factors, sums, to):
    """With ``s = residuals[at:]`` add ``value * s`` and ``square * |s| (1 - 2 |s|)`` to the sums at ``to``.

    For half residuals of the log loss the second term is half the diagonal of its Hessian; `factors` are
    value and square.
    """
    signature = types.void(residuals, at, factors, sums, to)

    def generate(context, builder, signature, arguments):
        residuals, at, factors, sums, to = arguments
        kind, _, _, sums_kind, _ = signature.args
        value, square = cgutils.unpack_tuple(builder, factors, 2)
        first, second = cgutils.unpack_tuple(builder, to, 2)
        residual = load(builder, pointer(context, builder, kind, residuals, at), kind)
        target = pointer(context, builder, sums_kind, sums, first)
        accumulate(builder, target, sums_kind, builder.fmul(residual, spread(builder, value)))
        negative = builder.fcmp_ordered("<", residual, _constant(residual.type, 0.0))
        size = builder.select(negative, builder.fneg(residual), residual)
        twice = builder.fadd(size, size)
        curvature = builder.fmul(size, builder.fsub(_constant(size.type, 1.0), twice))
        target = pointer(context, builder, sums_kind, sums, second)
        accumulate(builder, target, sums_kind, builder.fmul(curvature, spread(builder, square)))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def lanes_variance(typing, shares, at, square, sums, to):
    """``sums[to:] += square * p (1 - p)`` with ``p = shares[at:]``."""
    signature = types.void(shares, at, square, sums, to)

    def generate(context, builder, signature, arguments):
        shares, at, square, sums, to = arguments
        kind, _, _, sums_kind, _ = signature.args
        share = load(builder, pointer(context, builder, kind, shares, at), kind)
        variance = builder.fmul(share, builder.fsub(_constant(share.type, 1.0), share))
        target = pointer(context, builder, sums_kind, sums, to)
        accumulate(builder, target, sums_kind, builder.fmul(variance, spread(builder, square)))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def lanes_turn(typing, residuals, shares, at, factor, step, mean, to):
    """``residuals[at:] += factor * shares[at:] * (step[to:] - mean)``; all have one precision."""
    signature = types.void(residuals, shares, at, factor, step, mean, to)

    def generate(context, builder, signature, arguments):
        residuals, shares, at, factor, step, mean, to = arguments
        kind, shares_kind, _, _, step_kind, _, _ = signature.args
        share = load(builder, pointer(context, builder, shares_kind, shares, at), shares_kind)
        move = load(builder, pointer(context, builder, step_kind, step, to), step_kind)
        move = builder.fmul(builder.fsub(move, spread(builder, mean)), spread(builder, factor))
        target = pointer(context, builder, kind, residuals, at)
        accumulate(builder, target, kind, builder.fmul(share, move))
        return context.get_dummy_value()

    return signature, generate
