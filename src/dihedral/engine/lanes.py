"""Rows of L float32 numbers in vector registers, for kernels of numba.

LLVM does not vectorise loops over the components of a state, because two arrays might overlap. Here a row is loaded,
computed with and stored as one value: `store(a, i, load(a, i, lanes) + w * x)`. `lanes` is a tuple of L zeros: its
length is known when a kernel is compiled.
"""

# mypy: ignore-errors

from __future__ import annotations

import operator

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, overload, register_model

FLAGS = ("contract", "reassoc", "nsz", "arcp")  # as `path_kernels.FAST`


class Row(types.Type):
    """The type of a row of numbers in registers."""

    def __init__(self, size):
        self.size = size
        super().__init__(name=f"Row({size})")


@register_model(Row)
class RowModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, ir.VectorType(ir.FloatType(), kind.size))


def _pointer(context, builder, kind, value, index_type, index, row):
    """The address of a row of an array, whose index leads to its first number."""
    array = context.make_array(kind)(context, builder, value)
    places = [builder.sext(i, ir.IntType(64)) for i in cgutils.unpack_tuple(builder, index, index_type.count)]
    pointer = cgutils.get_item_pointer(context, builder, kind, array, places, wraparound=False)
    return builder.bitcast(pointer, context.get_value_type(row).as_pointer())


@intrinsic
def load(typing, array, index, lanes):
    """The row of an array that begins at an index, a tuple with one number per dimension."""
    row = Row(lanes.count)

    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, array, arguments[0], index, arguments[1], row)
        return builder.load(pointer, align=4)

    return row(array, index, lanes), generate


@intrinsic
def store(typing, array, index, row):
    """Write a row to where an index of an array leads to."""

    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, array, arguments[0], index, arguments[1], row)
        builder.store(arguments[2], pointer, align=4)

    return types.void(array, index, row), generate


@intrinsic
def fill(typing, number, lanes):
    """A row of equal numbers."""
    row = Row(lanes.count)
    return row(types.float32, lanes), lambda context, builder, _, arguments: _filled(builder, arguments[0], row.size)


def _filled(builder, number, size):
    """A vector of equal numbers."""
    nothing = ir.Constant(ir.VectorType(ir.FloatType(), size), ir.Undefined)
    first = builder.insert_element(nothing, number, ir.IntType(32)(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), size), [0] * size))


@intrinsic
def root(typing, row):
    """The square roots of a row."""
    return row(row), lambda context, builder, _, arguments: _call(builder, "llvm.sqrt", arguments, arguments[0].type)


@intrinsic
def total(typing, row):
    """The sum of a row."""
    number = ir.FloatType()

    def generate(context, builder, signature, arguments):
        return _call(builder, "llvm.vector.reduce.fadd", [number(0.0), *arguments], number)

    return types.float32(row), generate


def _call(builder, name, arguments, result):
    """Call a function of LLVM on rows."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, f"{name}.v{arguments[-1].type.count}f32")
    return builder.call(function, arguments, fastmath=FLAGS)


def _operation(symbol, name):
    """Let an operator combine two rows, or a row and a number."""

    @intrinsic
    def combine(typing, left, right):
        row = left if isinstance(left, Row) else right

        def generate(context, builder, signature, arguments):
            kinds = zip(arguments, signature.args, strict=True)
            rows = [value if isinstance(kind, Row) else _filled(builder, value, row.size) for value, kind in kinds]
            return getattr(builder, name)(*rows, flags=FLAGS)

        signature = (kind if isinstance(kind, Row) else types.float32 for kind in (left, right))
        return row(*signature), generate

    @overload(symbol)
    def operation(left, right):
        has_rows = isinstance(left, Row) or isinstance(right, Row)
        return (lambda left, right: combine(left, right)) if has_rows else None


_operation(operator.add, "fadd")
_operation(operator.sub, "fsub")
_operation(operator.mul, "fmul")
_operation(operator.truediv, "fdiv")
