# mypy: ignore-errors
"""Vector instructions on groups of classes, as functions that kernels call.

A row of scores is a few groups of `LANES` numbers; a loop over so few numbers is too short for the
compiler to vectorise by itself, so these functions write the vector instructions. An offset counts
elements from the start of an array; a group need not be aligned.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8


def padded_classes(n_classes: int) -> int:
    """Return the number of classes, padded to whole vectors."""
    return -(-n_classes // LANES) * LANES


def pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    """Return a pointer to `LANES` elements of a C-contiguous array, `offset` elements from its start."""
    data = context.make_array(array_type)(context, builder, array).data
    lanes = ir.VectorType(context.get_value_type(array_type.dtype), LANES)
    return builder.bitcast(builder.gep(data, [offset]), lanes.as_pointer())


def element(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    """Return a pointer to the element of a C-contiguous array at ``offset``."""
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [offset])


def load(builder: Any, pointer: Any, array_type: Any) -> Any:
    """Return the vector a pointer points to."""
    return builder.load(pointer, align=array_type.dtype.bitwidth // 8)


def spread(builder: Any, scalar: Any) -> Any:
    """Return a vector with the scalar in every lane."""
    lanes = ir.VectorType(scalar.type, LANES)
    index = ir.IntType(32)
    one = builder.insert_element(ir.Constant(lanes, ir.Undefined), scalar, index(0))
    mask = ir.Constant(ir.VectorType(index, LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), mask)


def total(builder: Any, vector: Any) -> Any:
    """Return the sum of the lanes."""
    element = vector.type.element
    name = f"llvm.vector.reduce.fadd.v{LANES}f{32 if isinstance(element, ir.FloatType) else 64}"
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(element, [element, vector.type]), name
    )
    # "reassoc" lets the lanes be added as a tree; the order is fixed when the kernel is compiled.
    return builder.call(function, [ir.Constant(element, 0.0), vector], fastmath=("reassoc",))


def positive_part(builder: Any, vector: Any) -> tuple[Any, Any]:
    """Return max(vector, 0) and the mask of its positive lanes; NaN counts as not positive."""
    zero = ir.Constant(vector.type, [0.0] * LANES)
    mask = builder.fcmp_ordered(">", vector, zero)
    return builder.select(mask, vector, zero), mask


def accumulate(builder: Any, pointer: Any, array_type: Any, terms: Any) -> None:
    """Add float32 or float64 terms to `LANES` float64 sums."""
    if terms.type != pointer.type.pointee:
        terms = builder.fpext(terms, pointer.type.pointee)
    sums = builder.fadd(load(builder, pointer, array_type), terms)
    builder.store(sums, pointer, align=array_type.dtype.bitwidth // 8)


@intrinsic
def lanes_gradient(typing, scores, at, shift, value, sums, to):
    """``sums[to:] += value * m`` with ``m = max(shift + scores[at:], 0)``; returns the sum of m."""
    signature = scores.dtype(scores, at, shift, value, sums, to)

    def generate(context, builder, signature, arguments):
        scores, at, shift, value, sums, to = arguments
        kind, _, _, _, sums_kind, _ = signature.args
        row = load(builder, pointer(context, builder, kind, scores, at), kind)
        margin, _ = positive_part(builder, builder.fadd(row, spread(builder, shift)))
        target = pointer(context, builder, sums_kind, sums, to)
        accumulate(builder, target, sums_kind, builder.fmul(margin, spread(builder, value)))
        return total(builder, margin)

    return signature, generate


@intrinsic
def lanes_balanced(typing, scores, factor, sums, offsets, shift, value):
    """`lanes_gradient` with every margin multiplied by a factor; `offsets` are those of the three arrays."""
    signature = scores.dtype(scores, factor, sums, offsets, shift, value)

    def generate(context, builder, signature, arguments):
        scores, factor, sums, offsets, shift, value = arguments
        kind, factor_kind, sums_kind, *_ = signature.args
        at, factor_at, to = cgutils.unpack_tuple(builder, offsets, 3)
        row = load(builder, pointer(context, builder, kind, scores, at), kind)
        margin, _ = positive_part(builder, builder.fadd(row, spread(builder, shift)))
        weight = load(builder, pointer(context, builder, factor_kind, factor, factor_at), factor_kind)
        margin = builder.fmul(margin, weight)
        target = pointer(context, builder, sums_kind, sums, to)
        accumulate(builder, target, sums_kind, builder.fmul(margin, spread(builder, value)))
        return total(builder, margin)

    return signature, generate


@intrinsic
def lanes_curvature(typing, scores, sums, curvature, offsets, shift, factors):
    """`lanes_gradient` and ``curvature[curve_to:] += square * [m > 0]``; sum of m and their number.

    `offsets` are those of the three arrays, `factors` the value and the square.
    """
    signature = types.UniTuple(scores.dtype, 2)(scores, sums, curvature, offsets, shift, factors)

    def generate(context, builder, signature, arguments):
        scores, sums, curvature, offsets, shift, factors = arguments
        kind, sums_kind, curvature_kind, *_ = signature.args
        at, to, curve_to = cgutils.unpack_tuple(builder, offsets, 3)
        value, square = cgutils.unpack_tuple(builder, factors, 2)
        row = load(builder, pointer(context, builder, kind, scores, at), kind)
        margin, mask = positive_part(builder, builder.fadd(row, spread(builder, shift)))
        zero = ir.Constant(margin.type, [0.0] * LANES)
        one = ir.Constant(margin.type, [1.0] * LANES)
        target = pointer(context, builder, sums_kind, sums, to)
        accumulate(builder, target, sums_kind, builder.fmul(margin, spread(builder, value)))
        target = pointer(context, builder, curvature_kind, curvature, curve_to)
        squares = builder.select(mask, spread(builder, square), zero)
        accumulate(builder, target, curvature_kind, squares)
        count = total(builder, builder.select(mask, one, zero))
        return context.make_tuple(builder, signature.return_type, [total(builder, margin), count])

    return signature, generate


@intrinsic
def lanes_change(typing, scores, step, offsets, shift, value, own_step):
    """Sum of ``max(m + value (step - own_step), 0)² - max(m, 0)²`` with ``m = shift + scores``.

    `offsets` are those of scores and step. The margins have the precision of the scores, everything after
    them is float64: otherwise the rounding of the margins hides the small changes near the optimum.
    """
    signature = types.float64(scores, step, offsets, shift, value, own_step)

    def generate(context, builder, signature, arguments):
        scores, step, offsets, shift, value, own_step = arguments
        kind, step_kind, *_ = signature.args
        at, step_at = cgutils.unpack_tuple(builder, offsets, 2)
        row = load(builder, pointer(context, builder, kind, scores, at), kind)
        delta = load(builder, pointer(context, builder, step_kind, step, step_at), step_kind)
        margin = builder.fadd(row, spread(builder, shift))
        if margin.type != delta.type:
            margin = builder.fpext(margin, delta.type)
        delta = builder.fmul(builder.fsub(delta, spread(builder, own_step)), spread(builder, value))
        before, _ = positive_part(builder, margin)
        after, _ = positive_part(builder, builder.fadd(margin, delta))
        # a² - b² = (a - b)(a + b) keeps the digits of a small change
        change = builder.fmul(builder.fsub(after, before), builder.fadd(after, before))
        return total(builder, change)

    return signature, generate


@intrinsic
def lanes_add(typing, scores, at, value, step, step_at):
    """``scores[at:] += value * step[step_at:]``."""
    signature = types.void(scores, at, value, step, step_at)

    def generate(context, builder, signature, arguments):
        scores, at, value, step, step_at = arguments
        kind, step_kind = signature.args[0], signature.args[3]
        target = pointer(context, builder, kind, scores, at)
        delta = load(builder, pointer(context, builder, step_kind, step, step_at), step_kind)
        accumulate(builder, target, kind, builder.fmul(delta, spread(builder, value)))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def prefetch(typing, scores, at):
    """Ask for the cache line of ``scores[at]``, which must be within the array."""
    signature = types.void(scores, at)

    def generate(context, builder, signature, arguments):
        number = ir.IntType(32)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        line = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [line.type, number, number, number]),
            "llvm.prefetch.p0",
        )
        builder.call(function, [line, number(0), number(3), number(1)])  # to read, keep, data
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def lanes_margins(typing, scores, at, shift, margins, to):
    """``margins[to:] = max(shift + scores[at:], 0)``; returns their sum."""
    signature = scores.dtype(scores, at, shift, margins, to)

    def generate(context, builder, signature, arguments):
        scores, at, shift, margins, to = arguments
        kind, _, _, margins_kind, _ = signature.args
        row = load(builder, pointer(context, builder, kind, scores, at), kind)
        margin, _ = positive_part(builder, builder.fadd(row, spread(builder, shift)))
        target = pointer(context, builder, margins_kind, margins, to)
        builder.store(margin, target, align=margins_kind.dtype.bitwidth // 8)
        return total(builder, margin)

    return signature, generate


@intrinsic
def lanes_active(typing, scores, at, shift, moves, own_move, to):
    """``moves[to:] = [shift + scores[at:] > 0] * (moves[to:] - own_move)``; returns their sum."""
    signature = scores.dtype(scores, at, shift, moves, own_move, to)

    def generate(context, builder, signature, arguments):
        scores, at, shift, moves, own_move, to = arguments
        kind, _, _, moves_kind, _, _ = signature.args
        row = load(builder, pointer(context, builder, kind, scores, at), kind)
        _, mask = positive_part(builder, builder.fadd(row, spread(builder, shift)))
        target = pointer(context, builder, moves_kind, moves, to)
        move = builder.fsub(load(builder, target, moves_kind), spread(builder, own_move))
        move = builder.select(mask, move, ir.Constant(move.type, [0.0] * LANES))
        builder.store(move, target, align=moves_kind.dtype.bitwidth // 8)
        return total(builder, move)

    return signature, generate


def _field(context, builder, kind, value, name):
    """Return an array in a named tuple, and its type."""
    place = kind.fields.index(name)
    return context.make_array(kind.types[place])(context, builder, builder.extract_value(value, place)), (
        kind.types[place]
    )


def _entry(context, builder, kind, rows, k, element):
    """Return the slot of entry `k` of rows as wide as `k`, and its value as an element of the matrix."""
    slots, _ = _field(context, builder, kind, rows, "slots")
    values, values_kind = _field(context, builder, kind, rows, "values")
    slot = builder.zext(builder.load(builder.gep(slots.data, [k])), k.type)
    value = builder.load(builder.gep(values.data, [k]))
    return slot, context.cast(builder, value, values_kind.dtype, element)


def _width(context, builder, kind, matrix):
    """Return the number of columns of a matrix."""
    _, width = cgutils.unpack_tuple(builder, context.make_array(kind)(context, builder, matrix).shape, 2)
    return width


def _offsets(context, builder, kind, groups, first, count):
    """Return `count` elements of `groups` from `first` on."""
    data = context.make_array(kind)(context, builder, groups).data
    return [builder.load(builder.gep(data, [builder.add(first, first.type(g))])) for g in range(count)]


def product_of(count):
    """Return a function that multiplies a sample by a matrix, for `count` groups of lanes at once.

    It sets ``into[g:] = scale * sum_k values[k] * matrix[slots[k], g:]`` for the entries k of `rows` from
    ``span[0]`` to ``span[1]`` and the groups ``g = groups[first:first + count]``, `first` the last of `span`.
    The sums stay in registers, and what an entry costs beside them is
    shared among the groups.
    """

    @intrinsic
    def product(typing, rows, span, scale, matrix, groups, into):
        signature = types.void(rows, span, scale, matrix, groups, into)

        def generate(context, builder, signature, arguments):
            rows, span, scale, matrix, groups, into = arguments
            rows_kind, _, _, matrix_kind, groups_kind, into_kind = signature.args
            start, stop, first = cgutils.unpack_tuple(builder, span, 3)
            width = _width(context, builder, matrix_kind, matrix)
            offsets = _offsets(context, builder, groups_kind, groups, first, count)
            zero = ir.Constant(ir.VectorType(context.get_value_type(matrix_kind.dtype), LANES), [0.0] * LANES)
            sums = [cgutils.alloca_once_value(builder, zero) for _ in range(count)]
            for place in sums:
                builder.store(zero, place)
            with cgutils.for_range_slice(builder, start, stop, start.type(1), intp=start.type) as (k, _):
                slot, value = _entry(context, builder, rows_kind, rows, k, matrix_kind.dtype)
                at, value = builder.mul(slot, width), spread(builder, value)
                for offset, place in zip(offsets, sums, strict=True):
                    row = pointer(context, builder, matrix_kind, matrix, builder.add(at, offset))
                    term = builder.fmul(load(builder, row, matrix_kind), value)
                    builder.store(builder.fadd(builder.load(place), term), place)
            for offset, place in zip(offsets, sums, strict=True):
                target = pointer(context, builder, into_kind, into, offset)
                scaled = builder.fmul(builder.load(place), spread(builder, scale))
                builder.store(scaled, target, align=into_kind.dtype.bitwidth // 8)
            return context.get_dummy_value()

        return signature, generate

    return product


def outer_of(count, square=False):
    """Return a function that adds the outer product of a sample and a residual to a matrix.

    It adds ``values[k] * scale * residual[g:]`` to ``out[slots[k], g:]`` for the entries and groups of
    `product_of`; with `square` the values are squared.
    """

    @intrinsic
    def outer(typing, rows, span, scale, residual, groups, out):
        signature = types.void(rows, span, scale, residual, groups, out)

        def generate(context, builder, signature, arguments):
            rows, span, scale, residual, groups, out = arguments
            rows_kind, _, _, residual_kind, groups_kind, out_kind = signature.args
            start, stop, first = cgutils.unpack_tuple(builder, span, 3)
            width = _width(context, builder, out_kind, out)
            offsets = _offsets(context, builder, groups_kind, groups, first, count)
            steps = []
            for offset in offsets:
                step = load(
                    builder, pointer(context, builder, residual_kind, residual, offset), residual_kind
                )
                steps.append(builder.fmul(step, spread(builder, scale)))
            with cgutils.for_range_slice(builder, start, stop, start.type(1), intp=start.type) as (k, _):
                slot, value = _entry(context, builder, rows_kind, rows, k, out_kind.dtype)
                at = builder.mul(slot, width)
                value = spread(builder, builder.fmul(value, value) if square else value)
                for offset, step in zip(offsets, steps, strict=True):
                    target = pointer(context, builder, out_kind, out, builder.add(at, offset))
                    accumulate(builder, target, out_kind, builder.fmul(step, value))
            return context.get_dummy_value()

        return signature, generate

    return outer


def _type_add_rounded(typing, multiples, rows, values, first, step, sums, at):
    """``sums[at:] += values[k] * (step[at:] * multiples[rows[k] + at:])`` for the four k from ``first`` on.

    ``multiples`` are int8, of which ``rows`` are offsets in bytes; steps and what they multiply float32, the
    rest float64. A product and a sum are rounded once where the processor can do so.
    """
    signature = types.void(multiples, rows, values, first, step, sums, at)

    def generate(context, builder, signature, arguments):
        multiples, rows, values, first, step, sums, at = arguments
        kind, rows_kind, values_kind, _, step_kind, sums_kind, _ = signature.args
        steps = load(builder, pointer(context, builder, step_kind, step, at), step_kind)
        to = pointer(context, builder, sums_kind, sums, at)
        total = load(builder, to, sums_kind)
        wide, lanes = total.type, [ir.VectorType(ir.IntType(32), LANES), steps.type]
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(wide, [wide] * 3), f"llvm.fmuladd.v{LANES}f64"
        )
        for k in range(4):
            place = builder.add(first, ir.Constant(first.type, k))
            row = builder.load(element(context, builder, rows_kind, rows, place))
            value = builder.load(element(context, builder, values_kind, values, place))
            begin = pointer(context, builder, kind, multiples, builder.add(row, at))
            whole = builder.sext(builder.load(begin, align=1), lanes[0])
            weights = builder.fmul(builder.sitofp(whole, lanes[1]), steps)
            total = builder.call(multiply_add, [spread(builder, value), builder.fpext(weights, wide), total])
        builder.store(total, to, align=8)
        return context.get_dummy_value()

    return signature, generate


lanes_add_rounded: Any = intrinsic(_type_add_rounded)
