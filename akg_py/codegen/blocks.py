"""Nests in which runs shorter than a cache line swap places: squares of runs move in registers.

In: loops `row`, `near` and `lane`, perhaps with others between the first two, around one store. It
writes a run along `lane` and the next run along `near`; its loads read a run along `lane` and the
next one along `row`. Out: squares of runs, as many as fill a line. Each line is read whole and
written whole, around the cache where that pays. Squares over an edge are moved inside, where they
store some elements again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from akg_py import dtypes
from akg_py.codegen.dependence import is_independent
from akg_py.codegen.indices import Linear
from akg_py.codegen.llvm import ELEM_BYTES, Builder, Val, constant
from akg_py.codegen.streams import LINE_BYTES, straight
from akg_py.codegen.strides import stride_along
from akg_py.codegen.transpose import transpose
from akg_py.ir.expr import Expr, Load, Var, children
from akg_py.ir.stmt import Buffer, For, Stmt, Store, buffer_of
from akg_py.records import dataclass

if TYPE_CHECKING:
    from akg_py.codegen.lanes import Lanes


@dataclass(frozen=True)
class _Nest:
    """Loops around a store, and the loads whose runs change places."""

    loops: tuple[For, For, For]  # row, near, lane
    middle: tuple[For, ...]  # between row and near
    store: Store
    loads: tuple[Load, ...]

    @property
    def target(self) -> Buffer:
        return self.store.buffers[0]


def is_blocks(lanes: Lanes, s: For) -> bool:
    """Whether `emit_blocks` takes `s`."""
    return _match(lanes, s) is not None


def emit_blocks(lanes: Lanes, s: For) -> bool:
    """Emit the nest that starts with `s` by squares of runs; False leaves it to the caller."""
    nest = _match(lanes, s)
    if nest is None:
        return False
    row, near, lane = nest.loops
    run = _extent(lanes, lane)
    side = LINE_BYTES // dtypes.size_bytes(nest.target.dtype) // run

    def inside(at: Linear, extent: int) -> Linear:
        last = constant(extent - side, "i64")
        return Linear({lanes.b.intrinsic("smin", lanes.materialise(at), last).ref: 1})

    rows, columns = _extent(lanes, row), _extent(lanes, near)

    def squares(i: Linear, middle: tuple[For, ...]) -> None:
        if middle:
            first, *others = middle

            def around(x: Linear) -> None:
                with lanes.bound(first.var, x):
                    squares(i, tuple(others))

            lanes.counted(constant(_extent(lanes, first), "i64"), 1, around, [], False)
            return

        def square(j: Linear) -> None:
            _square(lanes, nest, (side, run), i, inside(j, columns))

        lanes.counted(constant(columns, "i64"), side, square, [], False)

    def line(i: Linear) -> None:
        squares(inside(i, rows), nest.middle)

    lanes.counted(constant(rows, "i64"), side, line, [], False)
    return True


def _extent(lanes: Lanes, f: For) -> int:
    return lanes.constant_extent(f) or 0


def _match(lanes: Lanes, s: For) -> _Nest | None:
    loops: list[For] = []
    inner: Stmt = s
    while isinstance(inner, For) and inner.kind in ("serial", "vector"):
        loops.append(inner)
        inner = inner.body
    stores = straight(inner)
    if len(loops) < 3 or len(stores) != 1 or len(stores[0].buffers) != 1:
        return None
    row, *middle, near, lane = loops
    (store,), (target,) = stores, stores[0].buffers
    line, run = LINE_BYTES // dtypes.size_bytes(target.dtype), _extent(lanes, lane)
    if not 2 <= run < line or line % run or id(target) in lanes.registers:
        return None
    if min(_extent(lanes, row), _extent(lanes, near)) < line // run:
        return None
    if not all(_extent(lanes, f) for f in middle):
        return None
    if [stride_along(target, store.indices, f.var) for f in (near, lane)] != [run, 1]:
        return None
    found = _loads_of_runs(store.values[0], row.var, near.var, lane.var, run)
    given = set(lanes.alias) | set(lanes.alias.values())
    if not found or id(target) in given | {id(x.source) for x in found}:
        return None
    if not all(is_independent(f, lanes.alias) for f in loops):
        return None
    return _Nest((row, near, lane), tuple(middle), store, tuple(found))


def _loads_of_runs(e: Expr, row: Var, near: Var, lane: Var, run: int) -> list[Load] | None:
    """The loads in `e` if all of them read runs that change places, and it is made of them only."""
    if isinstance(e, Var):
        return None
    if isinstance(e, Load):
        along = [stride_along(buffer_of(e), e.indices, v) for v in (row, near, lane)]
        return [e] if along[0] == run and along[1] is not None and along[2] == 1 else None
    found: list[Load] = []
    for child in children(e):
        inner = _loads_of_runs(child, row, near, lane, run)
        if inner is None:
            return None
        found += inner
    return found


def _square(lanes: Lanes, nest: _Nest, shape: tuple[int, int], i: Linear, j: Linear) -> None:
    """The square at row `i` and run `j`; `shape` is its side in runs, and the elements of a run."""
    (side, run), (row, near, lane) = shape, nest.loops
    with lanes.bound(row.var, i), lanes.bound(near.var, j), lanes.bound(lane.var, Linear()):
        late = lanes.past_multiple(nest.target, nest.store.indices, LINE_BYTES)
    lanes.lanes = side * run
    with lanes.bound(lane.var, Linear(lane=1)):
        for load in nest.loads:
            lines = []
            for n in range(side):
                with lanes.bound(row.var, i), lanes.bound(near.var, _plus(j, n)):
                    where = lanes.position(buffer_of(load), load.indices)
                    lines.append(lanes.read(buffer_of(load), where))
            lanes.tile[id(load.indices)] = _swapped(lanes.b, lines, run)

    def through() -> None:
        lanes.lanes = side * run
        with lanes.bound(lane.var, Linear(lane=1)):
            for n in range(side):
                lanes.tile_row = n
                with lanes.bound(row.var, _plus(i, n)), lanes.bound(near.var, j):
                    lanes.store(nest.store)
        lanes.lanes = 1

    def past() -> None:
        with lanes.around_cache(frozenset([id(nest.target)])):
            through()

    lanes.lanes = 1
    pitch = stride_along(nest.target, nest.store.indices, row.var)
    if id(nest.target) in lanes.streams.stores and pitch is not None and pitch % (side * run) == 0:
        lanes.b.if_else(lanes.b.compare("eq", late, constant(0, "i64")), past, through)
    else:
        through()
    lanes.tile = {}


def _plus(i: Linear, n: int) -> Linear:
    return Linear(i.terms, i.const + n)


def _swapped(b: Builder, lines: list[Val], run: int) -> list[Val]:
    """Line `n` of the result is made of the n-th run of each line."""
    side, first = len(lines), lines[0]
    words = f"i{8 * ELEM_BYTES[first.elem] * run}"
    if words in ELEM_BYTES and side > 2:
        whole = transpose(
            b, [b.op(f"bitcast {x.typed} to <{side} x {words}>", words, side) for x in lines]
        )
        return [b.op(f"bitcast {x.typed} to {first.type}", first.elem, first.lanes) for x in whole]
    done = []
    for n in range(side):
        parts = [b.shuffle(x, list(range(n * run, (n + 1) * run))) for x in lines]
        while len(parts) > 1:
            halves = zip(parts[::2], parts[1::2], strict=True)
            parts = [b.concatenate(x, y) for x, y in halves]
        done += parts
    return done
