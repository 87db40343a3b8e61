"""The tree between loop IR and a Program: loops and instructions over tiles without addresses.

A `Tile` is a buffer with its physical layout in one memory. Its address is the Var `base` until
memory is planned. `Loop` bodies are where tiles live: each iteration is one generation of the tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from akg_py import dtypes
from akg_py.ascend.program import Instruction
from akg_py.ir.expr import Expr, Var, const, linear_combination
from akg_py.ir.stmt import Buffer, Origin
from akg_py.records import dataclass

BLOCK = 32  # bytes: the unit of UB and L1
SPREAD = ".spread"  # suffix of tiles whose elements fill a block each


def round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


@dataclass(slots=True, eq=False)
class Tile:
    """A buffer's storage.

    Attributes:
        strides: bytes between neighbours on each axis; for cube layouts (L1, L0A, L0B, L0C) only
            the leading axes have one, the last two form the fractal layout.
        column_stride: bytes between columns of fractals in L1 and L0C.
        size_bytes: one copy.
        loop: the loop whose body it lives in; None for the whole phase.
    """

    buffer: Buffer
    base: Var
    strides: tuple[int, ...]
    size_bytes: int
    column_stride: int = 0
    loop: Loop | None = None
    origin: Origin | None = None

    @property
    def element_bytes(self) -> int:
        return dtypes.size_bytes(self.buffer.dtype)

    @property
    def columns(self) -> int:
        """Elements in one 32-byte row of a fractal."""
        return BLOCK // self.element_bytes


@dataclass(slots=True, eq=False)
class Loop:
    """`body` for var = 0 .. extent - 1, with the tiles that live in one iteration."""

    var: Var
    extent: Expr
    body: list[Loop | Instruction] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    origin: Origin | None = None


Node = Loop | Instruction


def make_tile(buffer: Buffer, transposed: bool = False, origin: Origin | None = None) -> Tile:
    """Lay `buffer` out in its memory; `transposed`: an L0 operand is stored the other way."""
    es = dtypes.size_bytes(buffer.dtype)
    base = Var(f"&{buffer.name}", "int32", 0, 1 << 60)
    shape = buffer.shape
    if buffer.scope in ("L1", "L0A", "L0B", "L0C"):
        rows, cols = (1, 1, *shape)[-2:]
        c0 = BLOCK // es
        column_stride = 0
        if buffer.scope == "L0C":
            column_stride = round_up(rows, 16) * 64
            size = column_stride * (round_up(cols, 16) // 16)
        elif buffer.scope == "L1":
            column_stride = round_up(rows, 16) * BLOCK
            size = column_stride * (round_up(cols, 16) // c0)
        else:
            reduce_is_last = (buffer.scope == "L0A") != transposed
            k, other = (cols, rows) if reduce_is_last else (rows, cols)
            size = round_up(k, c0) * round_up(other, 16) * es
            size = round_up(size, 512)
        strides: list[int] = []
        total = size
        for extent in reversed(shape[:-2]):
            strides.insert(0, total)
            total *= max(extent, 1)
        return Tile(buffer, base, tuple(strides), max(total, BLOCK), column_stride, None, origin)
    plain: list[int] = []
    step = es
    for axis in range(len(shape) - 1, -1, -1):
        plain.insert(0, step)
        step *= max(shape[axis], 1)
        if buffer.scope == "UB" and axis == len(shape) - 1 and len(shape) > 1:
            step = round_up(step, BLOCK)
        if buffer.align is not None and buffer.align[0] == axis - 1 and buffer.scope == "UB":
            _, factor, offset = buffer.align
            elements = -(-step // es)
            elements += (offset - elements) % factor
            step = round_up(elements * es, BLOCK)
    return Tile(buffer, base, tuple(plain), max(round_up(step, BLOCK), BLOCK), 0, None, origin)


@dataclass(frozen=True, slots=True)
class TileRef:
    """Elements of a tile along the loops of a nest: an address that is a function of their Vars."""

    tile: Tile
    address: Expr
    dtype: str

    @property
    def is_spread(self) -> bool:
        """Whether each element fills a 32-byte block of its own."""
        return self.tile.buffer.name.endswith(SPREAD)

    def stride(self, var: Var) -> int | None:
        """Bytes per step of `var`; None if the address is not affine in it."""
        terms, _ = linear_combination(self.address)
        stride = terms.get(var, 0)
        for atom in terms:
            if atom is not var and depends_on(atom, var):
                return None
        return stride


def depends_on(e: Expr, var: Var) -> bool:
    from akg_py.ir.expr import free_vars

    return e is var or (not isinstance(e, Var) and var in free_vars(e))


def is_multiple(e: Expr, n: int) -> bool:
    """Whether an index expression is surely a multiple of `n` (tile bases are multiples of 512)."""
    terms, constant = linear_combination(e)
    return constant % n == 0 and all(
        coef % n == 0 or (isinstance(a, Var) and a.name.startswith("&"))
        for a, coef in terms.items()
    )


def element_address(tile: Tile, indices: tuple[Expr, ...]) -> Expr:
    """Address of an element of a tile with plain strides (UB and GM)."""
    e: Expr = tile.base
    for index, stride in zip(indices, tile.strides, strict=True):
        e = e + index * stride
    return e


def walk_nodes(nodes: list[Node]) -> Iterator[Node]:
    """All nodes, outer before inner, in program order."""
    for node in nodes:
        yield node
        if isinstance(node, Loop):
            yield from walk_nodes(node.body)


ZERO = const(0)
