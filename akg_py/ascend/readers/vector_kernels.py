"""Values of the vector instructions: one LLVM function per op from one factory, and a switch.

`vector_kernel(op, x)` runs op on the twelve operands at x, whose addresses are machine addresses.
Loops go over repeats and 32 B blocks with a masked last block; an instruction without gaps runs as
one flat array. All loads of a group come before its store, so exact in-place use is right.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from akg_py.ascend.isa import BRCB, DTYPE_BYTES, INSTRUCTIONS, REDUCE, VECTOR, InstructionSpec
from akg_py.ascend.readers.lanes import Lanes, convert, immediate, operation
from akg_py.codegen.memory import I64, load, machine, slot_of, store


@machine
def vector_kernel(typingctx: Any, op: Any, x: Any) -> Any:
    """Run the vector, cross-lane or broadcast instruction `op` on operands at address x."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        done = builder.append_basic_block("vector.done")
        switch = builder.switch(args[0], done)
        for spec in INSTRUCTIONS.values():
            if spec.family in (VECTOR, REDUCE, BRCB):
                block = builder.append_basic_block(spec.op)
                switch.add_case(I64(spec.number), block)
                builder.position_at_end(block)
                builder.call(_kernel(builder.module, spec), [args[1]])
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _kernel(module: ir.Module, spec: InstructionSpec) -> ir.Function:
    name = f"akg.{spec.op}"
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64]), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        function.attributes.add("optsize")  # no unrolled loops: half the compile time
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        {VECTOR: _lane_op, REDUCE: _cross_op, BRCB: _broadcast_op}[spec.family](
            builder, spec, function.args[0]
        )
        builder.ret_void()
    return function


def _operand(builder: ir.IRBuilder, x: ir.Value, i: int) -> ir.Value:
    return load(builder, builder.add(x, I64(8 * i)), I64, 8)


class _Operand:
    """Address of one operand's lanes: base, repeat and block strides, bytes of an element."""

    def __init__(self, builder: ir.IRBuilder, x: ir.Value, i: int, size: int) -> None:
        self.b, self.size = builder, size
        self.base = _operand(builder, x, i)
        self.rep, self.block = _operand(builder, x, 5 + i), _operand(builder, x, 8 + i)

    def at(self, repeat: ir.Value, lane: ir.Value, flat: bool) -> ir.Value:
        b = self.b
        address = b.add(self.base, b.mul(repeat, self.rep))
        byte = b.mul(lane, I64(self.size))
        if not flat:
            byte = b.add(b.mul(b.lshr(byte, I64(5)), self.block), b.and_(byte, I64(31)))
        return b.add(address, byte)


def _lane_op(builder: ir.IRBuilder, spec: InstructionSpec, x: ir.Value) -> None:
    name = spec.op.split("_")[0]
    sizes = [DTYPE_BYTES.get(d, 0) for d in spec.dtypes]
    operands = [_Operand(builder, x, i, size) if size else None for i, size in enumerate(sizes)]
    present = [o for o in operands if o is not None]
    lanes, repeats = _operand(builder, x, 3), _operand(builder, x, 4)
    bits = _operand(builder, x, 2)

    def body(
        width: int, flat: bool, repeat: ir.Value, lane: ir.Value, count: ir.Value | None
    ) -> None:
        vector = Lanes(builder, width)
        mask = None if count is None else vector.mask(count)
        places = [None if o is None else o.at(repeat, lane, flat) for o in operands]
        values = [
            None if places[i] is None else vector.load(places[i], spec.dtypes[i], mask)
            for i in (1, 2)
        ]
        dst, dtype = places[0], spec.dtypes[0]
        assert dst is not None
        if name == "VSEL":
            old = vector.load(dst, dtype, mask)
            zero = vector.integer(0) if dtype == "i32" else vector.real(0.0)
            result = builder.select(vector.compare("!=", values[0], zero), values[1], old)
        elif name == "VCONV":
            result = convert(vector, values[0], spec.dtypes[1], dtype)
        else:
            second = immediate(vector, bits, dtype) if values[1] is None else values[1]
            result = operation(vector, name, dtype, values[0], second)
        vector.store(result, dst, dtype, mask)

    def flat_loops(width: int, lanes: ir.Value, repeats: ir.Value) -> None:
        whole = builder.and_(lanes, I64(-width))
        rest = builder.sub(lanes, whole)
        with cgutils.for_range(builder, repeats, intp=I64) as outer:
            with cgutils.for_range(
                builder, builder.lshr(whole, I64(width.bit_length() - 1)), intp=I64
            ) as inner:
                body(width, True, outer.index, builder.mul(inner.index, I64(width)), None)
            with builder.if_then(builder.icmp_signed(">", rest, I64(0))):
                body(width, True, outer.index, whole, rest)

    def block_loops(width: int) -> None:
        groups = builder.lshr(builder.add(lanes, I64(width - 1)), I64(width.bit_length() - 1))
        with (
            cgutils.for_range(builder, repeats, intp=I64) as outer,
            cgutils.for_range(builder, groups, intp=I64) as inner,
        ):
            lane = builder.mul(inner.index, I64(width))
            body(width, False, outer.index, lane, builder.sub(lanes, lane))

    contiguous = ir.IntType(1)(1)
    dense = ir.IntType(1)(1)
    for o in present:
        contiguous = builder.and_(contiguous, builder.icmp_signed("==", o.block, I64(32)))
        dense = builder.and_(
            dense, builder.icmp_signed("==", o.rep, builder.mul(lanes, I64(o.size)))
        )
    with builder.if_else(contiguous) as (then, otherwise):
        with then:
            total = builder.select(dense, builder.mul(lanes, repeats), lanes)
            flat_loops(16, total, builder.select(dense, I64(1), repeats))
        with otherwise:
            block_loops(32 // max(sizes))


def _cross_op(builder: ir.IRBuilder, spec: InstructionSpec, x: ir.Value) -> None:
    """Groups of one 32 B block are combined in order, then the lanes of the group by halves."""
    name, dtype = spec.op.split("_")
    size = DTYPE_BYTES[dtype]
    width = 32 // size
    source = _Operand(builder, x, 1, size)
    lanes, repeats = _operand(builder, x, 3), _operand(builder, x, 4)
    dst, step = _operand(builder, x, 0), _operand(builder, x, 5)
    vector = Lanes(builder, width)
    if dtype == "i32":
        identity = vector.integer({"VCADD": 0, "VCMAX": -(1 << 31), "VCMIN": (1 << 31) - 1}[name])
    else:
        identity = vector.real({"VCADD": 0.0, "VCMAX": float("-inf"), "VCMIN": float("inf")}[name])
    combine = {"VCADD": "VADD", "VCMAX": "VMAX", "VCMIN": "VMIN"}[name]
    total = slot_of(builder, identity.type)
    whole = builder.and_(lanes, I64(-width))
    rest = builder.sub(lanes, whole)
    with cgutils.for_range(builder, repeats, intp=I64) as outer:
        builder.store(identity, total)
        with cgutils.for_range(
            builder, builder.lshr(whole, I64(width.bit_length() - 1)), intp=I64
        ) as inner:
            place = source.at(outer.index, builder.mul(inner.index, I64(width)), False)
            value = vector.load(place, dtype)
            builder.store(operation(vector, combine, dtype, builder.load(total), value), total)
        with builder.if_then(builder.icmp_signed(">", rest, I64(0))):
            value = vector.load(
                source.at(outer.index, whole, False), dtype, vector.mask(rest), identity
            )
            builder.store(operation(vector, combine, dtype, builder.load(total), value), total)
        value, half = builder.load(total), vector
        while half.width > 1:
            part = Lanes(builder, half.width // 2)
            undefined = ir.Constant(value.type, ir.Undefined)
            low = builder.shuffle_vector(
                value, undefined, ir.Constant(part.ints, list(range(part.width)))
            )
            high = builder.shuffle_vector(
                value, undefined, ir.Constant(part.ints, list(range(part.width, half.width)))
            )
            value, half = operation(part, combine, dtype, low, high), part
        half.store(value, builder.add(dst, builder.mul(outer.index, step)), dtype)


def _broadcast_op(builder: ir.IRBuilder, spec: InstructionSpec, x: ir.Value) -> None:
    size = DTYPE_BYTES[spec.dtypes[0]]
    kind = ir.IntType(8 * size)
    dst, src, count = (_operand(builder, x, i) for i in range(3))
    with cgutils.for_range(builder, count, intp=I64) as loop:
        element = load(builder, builder.add(src, builder.mul(loop.index, I64(size))), kind)
        splat = Lanes(builder, 32 // size).splat(element)
        store(builder, splat, builder.add(dst, builder.shl(loop.index, I64(5))))


__all__ = ["vector_kernel"]
