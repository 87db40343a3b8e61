"""A Program: phases of loops, instructions and flags, with every operand an index expression.

Compiler passes construct it, `table.assemble` turns a phase into rows for the compiled readers,
and `listing` prints it as assembly. An operand address is `space << 40 | byte offset` as one
expression, see `address`. Constructors for single instructions stand in `instructions`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any, Union

from akg_py.ascend.isa import FIRST_TENSOR, INSTRUCTIONS, SPACE_SHIFT, SPACES, VECTOR
from akg_py.errors import InternalError
from akg_py.ir.expr import Affine, Const, Expr, ExprLike, Var, as_expr, const, linear_combination
from akg_py.records import dataclass

if TYPE_CHECKING:
    from akg_py.ascend.device import Device

Node = Union["Instruction", "Repeat", "SetFlag", "WaitFlag"]


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One instruction: `op` is a key of isa.INSTRUCTIONS, operands stand in its order."""

    op: str
    operands: tuple[Expr, ...]
    pipe: str
    origin: Any = None

    def __post_init__(self) -> None:
        spec = INSTRUCTIONS.get(self.op)
        if spec is None or len(self.operands) != len(spec.operands):
            raise InternalError(f"{self.op} with {len(self.operands)} operands is no instruction")


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """`body` for var = 0 .. extent - 1. Each of `counters` is one more after every iteration.

    A counter starts at 0 with the program and is never reset; inside the body it is constant.
    An extent of zero or less runs nothing.
    """

    var: Var
    extent: Expr
    body: tuple[Node, ...]
    counters: tuple[Var, ...] = ()
    origin: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class SetFlag:
    """Pipe `src` raises flag `flag + event` for pipe `dst` when its earlier work is done."""

    src: str
    dst: str
    flag: int
    event: Expr
    origin: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class WaitFlag:
    """Pipe `dst` waits for, and takes, the flag that `src` set."""

    src: str
    dst: str
    flag: int
    event: Expr
    origin: Any = None


@dataclass(frozen=True, slots=True)
class Flag:
    """Flags `first .. first + events - 1` between two pipes."""

    src: str
    dst: str
    first: int
    events: int
    origin: Any = None


@dataclass(frozen=True, slots=True)
class LocalBuffer:
    """`copies` tiles of `size_bytes` from `offset_bytes` of an on-chip memory."""

    name: str
    scope: str
    offset_bytes: int
    size_bytes: int
    copies: int = 1
    dtype: str = ""
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GlobalTensor:
    """A tensor in GM; memory space 8 + index. Role: input, output or workspace."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str
    index: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the dense tensor."""
        from akg_py.dtypes import size_bytes

        total = size_bytes(self.dtype)
        for extent in self.shape:
            total *= extent
        return total


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """What all cores of one kind do between two barriers; `core` is the Var of the core's index."""

    name: str
    kind: str
    core: Var
    cores: int
    body: tuple[Node, ...]
    flags: tuple[Flag, ...] = ()
    buffers: tuple[LocalBuffer, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Phases over tensors on a device; phases meet at barriers."""

    name: str
    device: Device
    tensors: tuple[GlobalTensor, ...]
    phases: tuple[Phase, ...]
    tables: dict[int, Any] = field(default_factory=dict, init=False, repr=False)

    def listing(self) -> str:
        """The Program as readable assembly, operands as expressions, origins as comments."""
        lines = [f"program {self.name} on {self.device.name}"]
        for t in self.tensors:
            lines.append(f"  {t.role:9} {t.name}: {t.dtype}[{', '.join(map(str, t.shape))}]")
        for phase in self.phases:
            lines.append(
                f"phase {phase.name}: {phase.cores} {phase.kind} cores, index {phase.core.name}"
            )
            for b in phase.buffers:
                times = f" x {b.copies}" if b.copies > 1 else ""
                lines.append(f"  {b.scope:4} {b.offset_bytes:7} {b.name}: {b.size_bytes} B{times}")
            lines.extend(_format_nodes(phase.body, self, phase, 1))
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return self.listing()


def address(place: str | GlobalTensor, offset: ExprLike = 0) -> Expr:
    """The address `offset` bytes into a memory ("L1", "L0A", "L0B", "L0C", "UB") or a tensor."""
    space = FIRST_TENSOR + place.index if isinstance(place, GlobalTensor) else SPACES[place]
    return as_expr(offset) + const(space << SPACE_SHIFT)


def space_of(e: Expr) -> int:
    """Memory space of an address expression."""
    match e:
        case Affine():
            return e.const >> SPACE_SHIFT
        case Const():
            return int(e.value) >> SPACE_SHIFT
    return 0


def walk(nodes: Iterable[Node]) -> Iterator[Node]:
    """All nodes, outer before inner, in program order."""
    for node in nodes:
        yield node
        if isinstance(node, Repeat):
            yield from walk(node.body)


def format_address(e: Expr, program: Program, phase: Phase | None = None) -> str:
    """`L0C[offset]`, `tensor[byte offset]`, or the buffer's name with the offset in it."""
    _, constant = linear_combination(e)
    space, offset = constant >> SPACE_SHIFT, constant & ((1 << SPACE_SHIFT) - 1)
    if space >= FIRST_TENSOR and space - FIRST_TENSOR < len(program.tensors):
        name = program.tensors[space - FIRST_TENSOR].name
    else:
        name = next((n for n, number in SPACES.items() if number == space), f"space{space}")
        for b in phase.buffers if phase else ():
            if (
                b.scope == name
                and b.offset_bytes <= offset < b.offset_bytes + b.size_bytes * b.copies
            ):
                name, offset = f"{name}.{b.name}", offset - b.offset_bytes
                break
    rest = e - const(constant) + offset
    return f"{name}[{rest}]"


def format_instruction(node: Instruction, program: Program, phase: Phase | None = None) -> str:
    """`MMAD c=L0C[...] m=min(128, M - row) ...`, without zeros and default strides."""
    spec = INSTRUCTIONS[node.op]
    parts = [f"{node.op:<10}" if node.pipe == spec.pipe else f"{node.op}.{node.pipe}"]
    for operand, e in zip(spec.operands, node.operands, strict=True):
        if operand.role in ("dst", "src", "inout"):
            parts.append(f"{operand.name}={format_address(e, program, phase)}")
        elif isinstance(e, Const) and (
            e.value == 0 or (operand.name.endswith("_blk") and e.value == 32)
        ):
            continue
        elif operand.role == "immediate" and isinstance(e, Const) and spec.family == VECTOR:
            parts.append(f"{operand.name}={scalar_value(int(e.value), spec.dtypes[0])}")
        else:
            parts.append(f"{operand.name}={e}")
    return " ".join(parts)


def scalar_value(bits: int, dtype: str) -> float | int:
    """The number that the raw bits of a scalar operand stand for."""
    if dtype == "f32":
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])
    if dtype == "f16":
        return float(struct.unpack("<e", struct.pack("<H", bits))[0])
    return bits


def format_node(node: Node, program: Program, phase: Phase | None = None) -> str:
    """One line without its origin."""
    match node:
        case Instruction():
            return format_instruction(node, program, phase)
        case Repeat():
            counters = (
                f" counting {', '.join(c.name for c in node.counters)}" if node.counters else ""
            )
            return f"for {node.var.name} < {node.extent}{counters}:"
        case SetFlag():
            return f"set_flag   {node.src} -> {node.dst} {node.flag} + {node.event}"
        case _:
            return f"wait_flag  {node.src} -> {node.dst} {node.flag} + {node.event}"


def _format_nodes(
    nodes: tuple[Node, ...], program: Program, phase: Phase, depth: int
) -> Iterator[str]:
    for node in nodes:
        text = "  " * depth + format_node(node, program, phase)
        yield text if node.origin is None else f"{text:<100}  # {node.origin}"
        if isinstance(node, Repeat):
            yield from _format_nodes(node.body, program, phase, depth + 1)
