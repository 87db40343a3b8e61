"""Accumulators in registers: elements that a loop rereads and rewrites without moving.

While a loop runs whose body reaches a buffer only at indices that the loop does not change, each
such element (or run of lanes) lives in a stack slot that LLVM turns into registers. It is loaded
before the loop and stored behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from akg_py.codegen import arithmetic
from akg_py.codegen.llvm import ELEM_BYTES, Block, Val, type_text
from akg_py.ir.expr import Var
from akg_py.ir.stmt import Buffer

if TYPE_CHECKING:
    from akg_py.codegen.indices import Linear
    from akg_py.codegen.values import Values


@dataclass
class _Cell:
    slot: str
    where: Linear
    lanes: int
    mask: Val | None
    is_stored: bool = False


class Registers:
    """The cells of one buffer during one loop; `before` is the block that enters the loop."""

    def __init__(self, buffer: Buffer, before: Block, unrolled: set[Var]) -> None:
        self.buffer = buffer
        self.unrolled = unrolled  # loops that must unroll for the cells to have names
        self.before = before
        self.elem = arithmetic.memory_elem(buffer.dtype)
        self.cells: dict[object, _Cell] = {}

    def _cell(self, values: Values, where: Linear) -> _Cell:
        lanes = 1 if where.is_uniform else values.lanes
        key = (where.key, lanes)
        cell = self.cells.get(key)
        if cell is None:
            slot = values.b.alloca(
                type_text(self.elem, lanes), max(ELEM_BYTES[self.elem] * lanes, 1)
            )
            cell = self.cells[key] = _Cell(slot, where, lanes, values.mask if lanes > 1 else None)
            here, guarded = values.b.at, values.guarded
            values.b.at, values.guarded = self.before, False
            first = values.read(self.buffer, where)
            values.b.emit(f"store {first.typed}, ptr {slot}")
            values.b.at, values.guarded = here, guarded
        return cell

    def read(self, values: Values, where: Linear) -> Val:
        cell = self._cell(values, where)
        return values.b.op(
            f"load {type_text(self.elem, cell.lanes)}, ptr {cell.slot}", self.elem, cell.lanes
        )

    def write(self, values: Values, where: Linear, value: Val) -> None:
        cell = self._cell(values, where)
        cell.is_stored = True
        value = values.b.splat(value, cell.lanes)
        values.b.emit(f"store {value.typed}, ptr {cell.slot}")

    def store_back(self, values: Values) -> None:
        """Write the cells to the buffer, from the present block."""
        lanes, mask = values.lanes, values.mask
        for cell in self.cells.values():
            if cell.is_stored:
                values.lanes, values.mask = cell.lanes, cell.mask
                last = values.b.op(
                    f"load {type_text(self.elem, cell.lanes)}, ptr {cell.slot}",
                    self.elem,
                    cell.lanes,
                )
                values.write(self.buffer, cell.where, last)
        values.lanes, values.mask = lanes, mask
