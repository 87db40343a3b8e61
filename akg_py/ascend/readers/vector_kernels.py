"""Values of the vector instructions: one LLVM function per op from one factory.

Each runs its op on the twelve operands at x, whose addresses are machine addresses. Loops go over
repeats and 32 B blocks with a masked last block; an instruction without gaps runs as one flat
array. All loads of a group come before its store, so exact in-place use is right.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from akg_py.ascend.isa import BRCB, DTYPE_BYTES, INSTRUCTIONS, REDUCE, VECTOR, InstructionSpec
from akg_py.ascend.readers import operations
from akg_py.ascend.readers.operations import operation
from akg_py.codegen import arithmetic, objects
from akg_py.codegen.linking import define
from akg_py.codegen.llvm import Builder, Module, Val, constant
from akg_py.codegen.memory import engine_stamp
from akg_py.codegen.target import host

FLAT_LANES = 16


def vector_kernels() -> dict[int, int]:
    """Number of each vector, cross-lane and broadcast op -> address of its C function.

    The functions take what `kernels.execute` takes, and stay for as long as the process.
    """
    key = objects.digest_of(f"vector instructions {engine_stamp()}")
    loaded = objects.load_as(key, lambda: ({}, _text()))
    addresses = {spec.number: loaded.address(_symbol(spec)) for spec in _specs()}
    loaded.keep_forever()
    return addresses


def _specs() -> list[InstructionSpec]:
    return [s for s in INSTRUCTIONS.values() if s.family in _MAKERS]


def _symbol(spec: InstructionSpec) -> str:
    return f"akg.{spec.op}"


def _text() -> str:
    module = Module(host())
    for spec in _specs():
        make = partial(_MAKERS[spec.family], spec)
        # optsize: no unrolled loops, half the compile time
        define(module, _symbol(spec), lambda b, op, x, *_, make=make: make(b, x), 5, "optsize")
    return module.text()


def _word(value: int) -> Val:
    return constant(value, "i64")


def _operand(b: Builder, x: Val, i: int) -> Val:
    return b.load(b.pointer(b.bin("add", x, _word(8 * i))), "i64", 1, 8)


class _Operand:
    """Address of one operand's lanes: base, repeat and block strides, bytes of an element."""

    def __init__(self, b: Builder, x: Val, i: int, size: int) -> None:
        self.b, self.size = b, size
        self.base = _operand(b, x, i)
        self.rep, self.block = _operand(b, x, 5 + i), _operand(b, x, 8 + i)

    def at(self, repeat: Val, lane: Val, flat: bool) -> Val:
        b = self.b
        address = b.bin("add", self.base, b.bin("mul", repeat, self.rep))
        byte = b.bin("mul", lane, _word(self.size))
        if not flat:
            block = b.bin("mul", b.bin("lshr", byte, _word(5)), self.block)
            byte = b.bin("add", block, b.bin("and", byte, _word(31)))
        return b.bin("add", address, byte)


def _in_groups(b: Builder, lanes: Val, width: int, body: Callable[[Val, Val | None], None]) -> None:
    """`body(lane, mask)` for each `width` of the lanes; the mask of a last part, else None."""
    whole = b.bin("and", lanes, _word(-width))
    rest = b.bin("sub", lanes, whole)
    shift = _word(width.bit_length() - 1)
    b.times(b.bin("lshr", whole, shift), lambda i: body(b.bin("mul", i, _word(width)), None))
    b.when(
        b.compare("sgt", rest, _word(0)),
        lambda: body(whole, operations.lanes_below(b, rest, width)),
    )


def _lane_op(spec: InstructionSpec, b: Builder, x: Val) -> None:
    name = spec.op.split("_")[0]
    sizes = [DTYPE_BYTES.get(d, 0) for d in spec.dtypes]
    operands = [_Operand(b, x, i, size) if size else None for i, size in enumerate(sizes)]
    lanes, repeats, bits = (_operand(b, x, i) for i in (3, 4, 2))
    dtype = spec.dtypes[0]
    unread = () if name == "VSEL" else (0,)

    def body(width: int, flat: bool, repeat: Val, lane: Val, mask: Val | None) -> None:
        places = [None if o is None else o.at(repeat, lane, flat) for o in operands]
        read = operations.load if name == "VCONV" else operations.load_wide
        dst, first, second = (
            None if place is None or i in unread else read(b, place, d, width, mask)
            for i, (place, d) in enumerate(zip(places, spec.dtypes, strict=True))
        )
        result = _result(b, name, spec, dst, first, second, bits)
        assert places[0] is not None
        operations.store(b, b.splat(result, width), places[0], dtype, mask)

    def flat_loops(total: Val, repeats: Val) -> None:
        b.times(
            repeats,
            lambda repeat: _in_groups(
                b, total, FLAT_LANES, lambda lane, mask: body(FLAT_LANES, True, repeat, lane, mask)
            ),
        )

    def block_loops(width: int) -> None:
        groups = b.bin("lshr", b.bin("add", lanes, _word(width - 1)), _word(width.bit_length() - 1))

        def group(repeat: Val, i: Val) -> None:
            lane = b.bin("mul", i, _word(width))
            mask = operations.lanes_below(b, b.bin("sub", lanes, lane), width)
            body(width, False, repeat, lane, mask)

        b.times(repeats, lambda repeat: b.times(groups, partial(group, repeat)))

    contiguous = dense = constant(True, "i1")
    for o in operands:
        if o is not None:
            contiguous = b.bin("and", contiguous, b.compare("eq", o.block, _word(32)))
            row = b.bin("mul", lanes, _word(o.size))
            dense = b.bin("and", dense, b.compare("eq", o.rep, row))
    b.if_else(
        contiguous,
        lambda: flat_loops(
            b.select(dense, b.bin("mul", lanes, repeats), lanes),
            b.select(dense, _word(1), repeats),
        ),
        lambda: block_loops(32 // max(sizes)),
    )


def _result(
    b: Builder,
    name: str,
    spec: InstructionSpec,
    old: Val | None,
    first: Val | None,
    second: Val | None,
    bits: Val,
) -> Val:
    """Wide lanes of dst from its old ones, the sources and the bits of an immediate."""
    dtype = operations.wide(spec.dtypes[0])
    if name == "VSEL":
        assert old is not None and first is not None and second is not None
        chosen = arithmetic.binary(b, "!=", first, arithmetic.literal(0, dtype), dtype)
        return b.select(chosen, second, old)
    if name == "VCONV":
        assert first is not None
        return operations.convert(b, first, spec.dtypes[1], spec.dtypes[0])
    if second is None:
        second = operations.immediate(b, bits, spec.dtypes[0])
    return operation(b, name, dtype, second if first is None else first, second)


def _cross_op(spec: InstructionSpec, b: Builder, x: Val) -> None:
    """Groups of one 32 B block are combined in order, then the lanes of the group by halves."""
    name, dtype = spec.op.split("_")
    size, wide = DTYPE_BYTES[dtype], operations.wide(dtype)
    width = 32 // size
    source = _Operand(b, x, 1, size)
    lanes, repeats = _operand(b, x, 3), _operand(b, x, 4)
    dst, step = _operand(b, x, 0), _operand(b, x, 5)
    if dtype == "i32":
        start = {"VCADD": 0.0, "VCMAX": -(2.0**31), "VCMIN": 2.0**31 - 1}[name]
    else:
        start = {"VCADD": 0.0, "VCMAX": float("-inf"), "VCMIN": float("inf")}[name]
    identity = arithmetic.literal(int(start) if dtype == "i32" else start, wide)
    identity = b.splat(identity, width)
    combine = {"VCADD": "VADD", "VCMAX": "VMAX", "VCMIN": "VMIN"}[name]
    total = b.alloca(identity.type, 32)

    def held() -> Val:
        return b.load(total, identity.elem, width, 32)

    def repeat(i: Val) -> None:
        b.store(total, identity, 32)

        def group(lane: Val, mask: Val | None) -> None:
            value = operations.load_wide(b, source.at(i, lane, False), dtype, width, mask)
            if mask is not None:
                value = b.select(mask, value, identity)
            b.store(total, operation(b, combine, wide, held(), value), 32)

        _in_groups(b, lanes, width, group)
        value, half = held(), width // 2
        while half > 1:
            low = b.shuffle(value, list(range(half)))
            high = b.shuffle(value, list(range(half, 2 * half)))
            value, half = operation(b, combine, wide, low, high), half // 2
        value = operation(b, combine, wide, b.lane(value, 0), b.lane(value, 1))
        operations.store(b, value, b.bin("add", dst, b.bin("mul", i, step)), dtype)

    b.times(repeats, repeat)


def _broadcast_op(spec: InstructionSpec, b: Builder, x: Val) -> None:
    size = DTYPE_BYTES[spec.dtypes[0]]
    dst, src, count = (_operand(b, x, i) for i in range(3))

    def block(i: Val) -> None:
        place = b.bin("add", src, b.bin("mul", i, _word(size)))
        element = b.load(b.pointer(place), f"i{8 * size}", 1, 1)
        target = b.pointer(b.bin("add", dst, b.bin("shl", i, _word(5))))
        b.store(target, b.splat(element, 32 // size), 1)

    b.times(count, block)


_MAKERS = {VECTOR: _lane_op, REDUCE: _cross_op, BRCB: _broadcast_op}
