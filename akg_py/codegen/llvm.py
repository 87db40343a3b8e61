"""Text of LLVM IR: values, blocks and a builder that broadcasts scalars to lanes by itself.

In: requests such as `b.bin("fadd", x, y)`; out: the lines of a module. Text is used rather than a
library of node classes because it builds in a tenth of the time and knows every type. A `Val` is a
scalar when `lanes` is 1; otherwise a vector of that many lanes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import field
from typing import NamedTuple

from akg_py.codegen.target import Processor
from akg_py.errors import InternalError
from akg_py.records import dataclass

#: bytes of an LLVM element type in memory
ELEM_BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "half": 2, "float": 4, "double": 8}


class Val(NamedTuple):
    """An SSA value or constant: its text, element type and number of lanes."""

    ref: str
    elem: str
    lanes: int = 1

    @property
    def type(self) -> str:
        return type_text(self.elem, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.ref}"


def type_text(elem: str, lanes: int = 1) -> str:
    return elem if lanes == 1 else f"<{lanes} x {elem}>"


def constant(value: float | int | bool, elem: str, lanes: int = 1) -> Val:
    """A constant, the same in all lanes."""
    if elem in ("float", "double"):
        number = float(value)
        if elem == "float" and math.isfinite(number):
            number = _to_single(number)
        text = f"0x{struct.unpack('>Q', struct.pack('>d', number))[0]:016X}"
        if elem == "float" and number != number:
            text = "0x7FF8000000000000"
    elif elem == "i1":
        text = "true" if value else "false"
    else:
        bits = ELEM_BYTES[elem] * 8
        wrapped = int(value) & ((1 << bits) - 1)
        text = str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)
    return Val(text if lanes == 1 else f"splat ({elem} {text})", elem, lanes)


def _to_single(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def constant_lanes(values: list[int], elem: str) -> Val:
    """A vector constant with its own integer in each lane."""
    return Val(
        f"<{', '.join(f'{elem} {constant(v, elem).ref}' for v in values)}>", elem, len(values)
    )


def first_lanes(count: int, width: int) -> Val:
    """A mask of `width` lanes of which the first `count` are set."""
    bits = ", ".join(f"i1 {'true' if i < count else 'false'}" for i in range(width))
    return Val(f"<{bits}>", "i1", width)


def count_first(mask: Val) -> int:
    """How many lanes a mask of `first_lanes` sets; 0 for other masks."""
    bits = [bit.strip(" <>") == "i1 true" for bit in mask.ref.split(",")]
    return sum(bits) if mask == first_lanes(sum(bits), mask.lanes) else 0


_FRESH = ("call", "phi")  # may depend on more than their operands


@dataclass(eq=False)
class Block:
    """A basic block; `end` is its terminator, kept apart so that lines can be added later.

    Attributes:
        known: instructions whose results can be used again, until a store for those that load.
        held: what the stack slots contain.
        hints: instructions that change no value.
    """

    label: str
    lines: list[str] = field(default_factory=list)
    end: str = ""
    known: dict[str, Val] = field(default_factory=dict)
    loaded: dict[str, Val] = field(default_factory=dict)
    held: dict[str, Val] = field(default_factory=dict)
    hints: set[str] = field(default_factory=set)


class Module:
    """Functions, and declarations made on demand."""

    def __init__(self, processor: Processor) -> None:
        self.processor = processor
        self.functions: list[str] = []
        self.declarations: dict[str, str] = {}
        self.definitions: dict[str, str] = {}
        self.metadata: list[str] = []

    def unrolled(self, count: int) -> str:
        """The name of a note on a loop's branch: how many copies of its body LLVM makes."""
        some = f'!{{!"llvm.loop.unroll.count", i32 {count}}}'
        kind = self._note(some if count > 1 else '!{!"llvm.loop.unroll.disable"}')
        n = len(self.metadata)
        self.metadata.append(f"!{n} = distinct !{{!{n}, {kind}}}")
        return f"!{n}"

    def around_cache(self) -> str:
        """The note of a store that leaves no line in the cache."""
        return f"!nontemporal {self._note('!{i32 1}')}"

    def _note(self, text: str) -> str:
        known = next((m for m in self.metadata if m.endswith(f" = {text}")), None)
        if known is not None:
            return known.split(" ", 1)[0]
        self.metadata.append(f"!{len(self.metadata)} = {text}")
        return f"!{len(self.metadata) - 1}"

    def text(self) -> str:
        # its own processor: numba, which may link the module, can be told to compile for another
        attributes = {
            "prefer-vector-width": self.processor.vector_bytes * 8,
            "target-cpu": self.processor.name,
            "target-features": self.processor.features,
        }
        kept = " ".join(f'"{name}"="{value}"' for name, value in attributes.items())
        parts = [
            *self.definitions.values(),
            *self.functions,
            *self.declarations.values(),
            f"attributes #0 = {{ nounwind {kept} }}",
            "\n".join(self.metadata),
        ]
        return "\n\n".join(parts) + "\n"


class Builder:
    """Appends instructions to the current block of one function."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.count = 0
        self.blocks: list[Block] = []
        self.entry = self.block("entry")
        self.allocas: list[str] = []
        self.depths: dict[str, int] = {}  # loops around the place where a pointer is made
        self.pieces: dict[str, int] = {}  # wide masks made of vectors: the lanes of these
        self.at = self.entry

    # ------------------------------------------------------------ structure

    def block(self, hint: str) -> Block:
        self.count += 1
        block = Block(f"{hint}.{self.count}")
        self.blocks.append(block)
        return block

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def emit(self, line: str) -> None:
        """An instruction without a result that may write memory, or one with a name of its own."""
        self.at.lines.append(line)
        self.at.loaded.clear()

    def hint(self, line: str) -> None:
        """An instruction that changes no value, once in a block."""
        if line not in self.at.hints:
            self.at.hints.add(line)
            self.at.lines.append(line)

    def op(self, text: str, elem: str, lanes: int = 1) -> Val:
        """The result of an instruction that writes no memory; the one of before if it is known."""
        kind = text.split(" ", 1)[0]
        memo = None if kind in _FRESH else self.at.loaded if kind == "load" else self.at.known
        if memo is not None and text in memo:
            return memo[text]
        result = Val(self.name(), elem, lanes)
        self.at.lines.append(f"{result.ref} = {text}")
        if memo is not None:
            memo[text] = result
        return result

    def jump(self, target: Block) -> None:
        self.at.end = f"br label %{target.label}"

    def branch(self, condition: Val, yes: Block, no: Block) -> None:
        self.at.end = f"br i1 {condition.ref}, label %{yes.label}, label %{no.label}"

    def phi(self, elem: str, lanes: int, incoming: list[tuple[str, Block]]) -> Val:
        pairs = ", ".join(f"[ {ref}, %{block.label} ]" for ref, block in incoming)
        return self.op(f"phi {type_text(elem, lanes)} {pairs}", elem, lanes)

    def alloca(self, type_: str, align: int) -> str:
        """Stack storage that lives as long as the function."""
        ref = self.name()
        self.allocas.append(f"{ref} = alloca {type_}, align {align}")
        return ref

    def slot(self, elem: str, lanes: int) -> str:
        """A stack slot for one value, which only `hold` and `held` reach."""
        return self.alloca(type_text(elem, lanes), max(ELEM_BYTES[elem] * lanes, 1))

    def hold(self, slot: str, value: Val) -> None:
        """Put a value into a slot."""
        self.at.lines.append(f"store {value.typed}, ptr {slot}")
        self.at.held[slot] = value

    def held(self, slot: str, elem: str, lanes: int) -> Val:
        """The value in a slot."""
        found = self.at.held.get(slot)
        if found is None:
            found = Val(self.name(), elem, lanes)
            self.at.lines.append(f"{found.ref} = load {found.type}, ptr {slot}")
            self.at.held[slot] = found
        return found

    def body(self) -> str:
        """The blocks as text; the stack storage comes first."""
        lines: list[str] = []
        for block in self.blocks:
            lines.append(f"{block.label}:")
            if block is self.entry:
                lines.extend(f"  {a}" for a in self.allocas)
            lines.extend(f"  {line}" for line in block.lines)
            if not block.end:
                raise InternalError(f"block {block.label} has no end")
            lines.append(f"  {block.end}")
        return "\n".join(lines)

    # ------------------------------------------------------------ operations

    def splat(self, v: Val, lanes: int) -> Val:
        """`v` in all of `lanes` lanes."""
        if v.lanes == lanes:
            return v
        if v.lanes != 1:
            raise InternalError(f"{v.lanes} lanes where {lanes} are needed")
        if not v.ref.startswith("%"):
            return Val(f"splat ({v.elem} {v.ref})", v.elem, lanes)
        one = self.op(
            f"insertelement <{lanes} x {v.elem}> poison, {v.elem} {v.ref}, i64 0", v.elem, lanes
        )
        return self.op(
            f"shufflevector {one.typed}, {one.type} poison, <{lanes} x i32> zeroinitializer",
            v.elem,
            lanes,
        )

    def join(self, *values: Val) -> tuple[Val, ...]:
        """The values with the same number of lanes."""
        lanes = max(v.lanes for v in values)
        return tuple(self.splat(v, lanes) for v in values)

    def bin(self, op: str, x: Val, y: Val) -> Val:
        if x.lanes != y.lanes:
            x, y = self.join(x, y)
        if x.elem != y.elem:
            raise InternalError(f"{op} of {x.elem} and {y.elem}")
        if size := self.pieces.get(x.ref) or self.pieces.get(y.ref):
            return self._by_pieces(size, lambda a, b: self.bin(op, a, b), x, y)
        return self.op(f"{op} {x.type} {x.ref}, {y.ref}", x.elem, x.lanes)

    def compare(self, kind: str, x: Val, y: Val) -> Val:
        x, y = self.join(x, y)
        if size := self._piece(x):
            return self._by_pieces(size, lambda a, b: self.compare(kind, a, b), x, y)
        op = "fcmp" if x.elem in ("float", "double") else "icmp"
        return self.op(f"{op} {kind} {x.type} {x.ref}, {y.ref}", "i1", x.lanes)

    def select(self, c: Val, x: Val, y: Val) -> Val:
        if c.lanes == 1:
            x, y = self.join(x, y)
        else:
            c, x, y = self.join(c, x, y)
            if size := self.pieces.get(c.ref):
                return self._by_pieces(size, self.select, c, x, y)
        return self.op(f"select {c.typed}, {x.typed}, {y.typed}", x.elem, x.lanes)

    def _piece(self, x: Val) -> int:
        """Lanes of a vector that `x` is compared by, if it is more than one; else 0.

        Where the processor keeps masks in the lanes they belong to, LLVM packs one that is wider
        than a vector into bytes, and takes it apart again.
        """
        processor = self.module.processor
        size = processor.vector_bytes // ELEM_BYTES.get(x.elem, 8)
        return 0 if processor.has_masks or x.lanes <= size or x.lanes % size else size

    def _by_pieces(self, size: int, function: Callable[..., Val], *args: Val) -> Val:
        """The function of vectors of `size` lanes, applied to those that `args` consist of.

        A mask that comes from it is known to have been made so.
        """
        starts = range(0, args[0].lanes, size)
        orders = [list(range(start, start + size)) for start in starts]
        parts = [function(*(self.shuffle(a, order) for a in args)) for order in orders]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            odd = parts[-1:] if len(parts) % 2 else []
            parts = [self.concatenate(a, b) for a, b in pairs] + odd
        if parts[0].elem == "i1":
            self.pieces[parts[0].ref] = size
        return parts[0]

    def cast(self, op: str, x: Val, elem: str) -> Val:
        return (
            x
            if x.elem == elem
            else self.op(f"{op} {x.typed} to {type_text(elem, x.lanes)}", elem, x.lanes)
        )

    def invert(self, c: Val) -> Val:
        return self.bin("xor", c, constant(True, "i1"))

    def both(self, a: Val | None, b: Val | None) -> Val | None:
        """`a and b` of masks, where None is true everywhere."""
        if a is None or b is None:
            return b if a is None else a
        return self.bin("and", a, b)

    def call(self, name: str, elem: str, lanes: int, *args: Val, extra: str = "") -> Val:
        """Call a function of the module or an intrinsic, declared as its arguments demand."""
        result = type_text(elem, lanes)
        if name not in self.module.definitions:
            types = ", ".join(a.type for a in args) + (", i1" if extra else "")
            self.module.declarations.setdefault(name, f"declare {result} @{name}({types})")
        return self.op(
            f"call {result} @{name}({', '.join(a.typed for a in args)}{extra})", elem, lanes
        )

    def intrinsic(self, name: str, *args: Val) -> Val:
        """An `llvm.` function overloaded by the type of its arguments, which it returns."""
        args = self.join(*args)
        return self.call(f"llvm.{name}.{suffix(args[0])}", args[0].elem, args[0].lanes, *args)

    def lane(self, v: Val, index: int) -> Val:
        return self.op(f"extractelement {v.typed}, i64 {index}", v.elem)

    def insert(self, v: Val, one: Val, index: int) -> Val:
        """`v` with another value in one lane."""
        return self.op(f"insertelement {v.typed}, {one.typed}, i64 {index}", v.elem, v.lanes)

    def per_lane(self, function: str, *args: Val) -> Val:
        """A scalar function (`double exp(double)`) applied lane by lane."""
        args = self.join(*args)
        elem, lanes = args[0].elem, args[0].lanes
        if lanes == 1:
            return self.call(function, elem, 1, *args)
        result = Val("poison", elem, lanes)
        for i in range(lanes):
            one = self.call(function, elem, 1, *(self.lane(a, i) for a in args))
            result = self.insert(result, one, i)
        return result

    # ------------------------------------------------------------ memory and loops

    def pointer(self, address: Val) -> str:
        """A pointer to what is at an `i64` address."""
        return self.op(f"inttoptr {address.typed} to ptr", "ptr").ref

    def load(self, pointer: str, elem: str, lanes: int, align: int, mask: Val | None = None) -> Val:
        """Adjacent elements; zero in lanes that `mask` leaves out, which aren't read."""
        if mask is None:
            return self.op(
                f"load {type_text(elem, lanes)}, ptr {pointer}, align {align}", elem, lanes
            )
        rest = Val("zeroinitializer", elem, lanes)
        name = f"llvm.masked.load.{suffix(rest)}.p0"
        self.module.declarations.setdefault(
            name, f"declare {rest.type} @{name}(ptr, <{lanes} x i1>, {rest.type})"
        )
        mask = self.splat(mask, lanes)
        return self.op(
            f"call {rest.type} @{name}(ptr align {align} {pointer}, {mask.typed}, {rest.typed})",
            elem,
            lanes,
        )

    def store(
        self, pointer: str, value: Val, align: int, mask: Val | None = None, hint: str = ""
    ) -> None:
        """Lanes side by side, those of `mask`; the hint is for a store without one."""
        if mask is None:
            self.emit(f"store {value.typed}, ptr {pointer}, align {align}{hint}")
            return
        count = 0 if self.module.processor.has_masks else count_first(mask)
        if count:  # in pieces
            start = 0
            while start < count:
                size = 1 << ((count - start).bit_length() - 1)
                part = self.lane(value, start) if size == 1 else value
                if size > 1:
                    part = self.shuffle(value, list(range(start, start + size)))
                at = self.op(f"getelementptr {value.elem}, ptr {pointer}, i64 {start}", "ptr").ref
                self.store(at, part, align)
                start += size
            return
        name = f"llvm.masked.store.{suffix(value)}.p0"
        mask = self.splat(mask, value.lanes)
        self.module.declarations.setdefault(
            name, f"declare void @{name}({value.type}, ptr, {mask.type})"
        )
        self.emit(f"call void @{name}({value.typed}, ptr align {align} {pointer}, {mask.typed})")

    def times(self, count: Val, body: Callable[[Val], None]) -> None:
        """`body(i)` for i from 0 below an `i64`."""
        before, head, after = self.at, self.block("loop"), self.block("after")
        self.branch(self.compare("sgt", count, constant(0, "i64")), head, after)
        self.at = head
        i, following = Val(self.name(), "i64"), self.name()
        head.lines.append("")
        body(i)
        head.lines[0] = (
            f"{i.ref} = phi i64 [ 0, %{before.label} ], [ {following}, %{self.at.label} ]"
        )
        self.emit(f"{following} = add nuw nsw i64 {i.ref}, 1")
        self.branch(self.compare("slt", Val(following, "i64"), count), head, after)
        self.at = after

    def when(self, condition: Val, body: Callable[[], None]) -> None:
        """`body()` if a scalar condition holds."""
        self.if_else(condition, body, lambda: None)

    def if_else(self, condition: Val, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """One of two bodies."""
        sides, after = [self.block("then"), self.block("else")], self.block("after")
        self.branch(condition, sides[0], sides[1])
        for block, body in zip(sides, (yes, no), strict=True):
            self.at = block
            body()
            self.jump(after)
        self.at = after

    def shuffle(self, v: Val, order: list[int], other: Val | None = None) -> Val:
        """The lanes `order` of `v`, or of `v` followed by `other`."""
        mask = ", ".join(f"i32 {i}" for i in order)
        second = f"{v.type} poison" if other is None else other.typed
        return self.op(
            f"shufflevector {v.typed}, {second}, <{len(order)} x i32> <{mask}>", v.elem, len(order)
        )

    def concatenate(self, x: Val, y: Val) -> Val:
        """The lanes of `x`, then those of `y`."""
        return self.shuffle(x, list(range(x.lanes + y.lanes)), y)


def suffix(v: Val) -> str:
    """How an intrinsic's name spells the type of `v`."""
    elem = {"float": "f32", "double": "f64", "half": "f16"}.get(v.elem, v.elem)
    return elem if v.lanes == 1 else f"v{v.lanes}{elem}"
