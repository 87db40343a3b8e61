"""argmax and argmin: the first place of the largest or smallest key, block by block.

In: a `Choice` whose condition only compares one key, where the earlier of equals stays. Out: a fold
that keeps, for each lane, its best key and the block that it came from. The place inside the block
is looked up at the end, so that most elements cost one comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from akg_py import dtypes
from akg_py.codegen import arithmetic
from akg_py.codegen.choices import Choice
from akg_py.codegen.folds import NanFlag, Slots, halves, write_element
from akg_py.codegen.indices import Linear
from akg_py.codegen.llvm import ELEM_BYTES, Val, constant, constant_lanes
from akg_py.codegen.strides import lane_stride
from akg_py.ir.expr import Binary, Call, Cast, Expr, Load, Unary, is_index
from akg_py.ir.stmt import buffer_of
from akg_py.records import dataclass

if TYPE_CHECKING:
    from akg_py.codegen.loops import Loops

_SWAPPED = {">": "<", "<": ">", ">=": "<=", "<=": ">=", "==": "==", "!=": "!="}
_OPPOSITE = {">": "<=", "<": ">=", ">=": "<", "<=": ">", "==": "!=", "!=": "=="}


@dataclass(frozen=True, slots=True)
class _Test:
    """`old[part] op new[part]`, or "nan" for "old[part] is NaN"."""

    part: int
    op: str


class Extremum(Choice):
    """A choice by the largest (or smallest) key.

    Attributes:
        key: the part of the store that is compared.
        op: "max" or "min".
        finds_nan: whether a NaN comes before all numbers.
    """

    def __init__(self, choice: Choice, key: int, op: str, finds_nan: bool) -> None:
        self.store, self.var, self.news, self.new = (
            choice.store, choice.var, choice.news, choice.new,
        )  # fmt: skip
        self.keep, self.held = choice.keep, list(range(len(choice.news)))
        self.key, self.op, self.finds_nan = key, op, finds_nan
        self.dtype = self.store.buffers[key].dtype
        self.operands = [self.news[key]]
        self.lane_bytes = max(4, ELEM_BYTES[arithmetic.compute_elem(self.dtype)])
        self.block: tuple[Val, Val] | None = None

    def start(self, loops: Loops, count: int, lanes: int, total: Val) -> None:
        self.old = [loops.load(b, self.store.indices) for b in self.store.buffers]
        lowest = dtypes.lowest(self.dtype) if self.op == "max" else dtypes.highest(self.dtype)
        self.worst = arithmetic.literal(lowest, self.dtype)
        self.best = Slots(loops, self.worst, 1, lanes)
        self.place = Slots(loops, constant(0, "i32"), 1, lanes)
        self.nan = NanFlag(loops, lanes)
        self.count, self.lanes, self.total = count, lanes, total

    def _beats(self, loops: Loops, x: Val, y: Val) -> Val:
        """Whether `x` is better than `y`; NaN is not."""
        if dtypes.is_float(self.dtype):
            return loops.b.compare("ogt" if self.op == "max" else "olt", x, y)
        return arithmetic.binary(loops.b, ">" if self.op == "max" else "<", x, y, self.dtype)

    def step(self, loops: Loops, n: int, more: bool) -> None:
        x = loops.value(self.news[self.key])
        if loops.mask is not None:
            x = loops.b.select(loops.mask, x, self.worst)
        if self.finds_nan:
            self.nan.note(loops, x, more)
        if self.block is None:
            where = loops.env[self.var]
            first = loops.materialise(Linear(where.terms, where.const), "i32")
            self.block = x, first
        else:
            best, first = self.block
            self.block = loops.b.select(self._beats(loops, x, best), x, best), first
        if not more:
            (x, first), self.block = self.block, None
            best = self.best.read(loops, 0)
            better = self._beats(loops, x, best)
            self.best.write(loops, 0, loops.b.select(better, x, best))
            place = loops.b.select(better, first, self.place.read(loops, 0))
            self.place.write(loops, 0, place)

    def finish(self, loops: Loops) -> None:
        best = top = self.best.read(loops, 0)
        while top.lanes > 1:
            low, high = halves(loops, top)
            top = loops.b.select(self._beats(loops, high, low), high, low)
        blocks = self.place.read(loops, 0)
        if self.lanes > 1:
            none = constant((1 << 31) - 1, "i32")
            tied = loops.b.select(self._equal(loops, best, top), blocks, none)
            name = f"llvm.vector.reduce.smin.v{self.lanes}i32"
            blocks = loops.b.call(name, "i32", 1, tied)
        place = self._find_in_block(loops, loops.b.cast("sext", blocks, "i64"), top)
        if self.finds_nan:
            place = self._or_first_nan(loops, place)
        loops.env[self.var] = Linear({place.ref: 1})
        new = [loops.value(e) for e in self.news]
        stays = self._keeps(loops, self.old, new)
        for buffer, x, y in zip(self.store.buffers, self.old, new, strict=True):
            write_element(loops, buffer, self.store.indices, loops.b.select(stays, x, y))
        del loops.env[self.var]

    def _equal(self, loops: Loops, x: Val, y: Val) -> Val:
        return arithmetic.binary(loops.b, "==", x, y, self.dtype)

    def _find_in_block(self, loops: Loops, start: Val, top: Val) -> Val:
        """The first place from `start` on whose key is `top`; `start` if there is none."""
        place = start
        for n in reversed(range(self.count)):
            at = Linear({start.ref: 1}, n * self.lanes)
            x, mask = self._keys(loops, at)
            place = self._first_of(loops, loops.b.both(mask, self._equal(loops, x, top)), at, place)
        return place

    def _or_first_nan(self, loops: Loops, place: Val) -> Val:
        """The first NaN, if there was one."""
        b = loops.b
        seen = self.nan.any(loops)
        slot = b.alloca("i64", 8)
        b.emit(f"store i64 {place.ref}, ptr {slot}")
        search, after = b.block("nan"), b.block("place")
        b.branch(seen, search, after)
        b.at = search
        lanes, one = constant(self.lanes, "i64"), constant(1, "i64")
        last = b.bin("sdiv", b.bin("sub", self.total, one), lanes)

        def body(i: Linear) -> None:  # from the end, so that the first one is found last
            at = Linear({b.bin("mul", b.bin("sub", last, loops.materialise(i)), lanes).ref: 1})
            x, mask = self._keys(loops, at)
            held = b.op(f"load i64, ptr {slot}", "i64")
            found = self._first_of(loops, b.both(mask, b.compare("uno", x, x)), at, held)
            b.emit(f"store i64 {found.ref}, ptr {slot}")

        loops.counted(b.bin("add", last, one), 1, body, [])
        b.jump(after)
        b.at = after
        return b.op(f"load i64, ptr {slot}", "i64")

    def _keys(self, loops: Loops, at: Linear) -> tuple[Val, Val | None]:
        """Keys of the lanes from `at` on, and which of them exist (None: all)."""
        b, total, mask = loops.b, self.total, None
        if total.ref.startswith("%") or int(total.ref) % (self.count * self.lanes):
            left = b.cast("trunc", b.bin("sub", total, loops.materialise(at)), "i32")
            numbers = constant_lanes(list(range(self.lanes)), "i32")
            mask = b.compare("slt", numbers if self.lanes > 1 else constant(0, "i32"), left)
            if self.lanes == 1:  # behind the end, look at the last one again
                last = b.bin("sub", total, constant(1, "i64"))
                at = Linear({b.intrinsic("smin", loops.materialise(at), last).ref: 1})
        loops.lanes, loops.mask = self.lanes, mask if self.lanes > 1 else None
        loops.env[self.var] = Linear(at.terms, at.const, int(self.lanes > 1))
        x = b.splat(loops.value(self.news[self.key]), self.lanes)
        del loops.env[self.var]
        loops.lanes, loops.mask = 1, None
        return x, mask

    def _first_of(self, loops: Loops, found: Val | None, at: Linear, otherwise: Val) -> Val:
        """The place of the first lane that is set, counted from `at`."""
        assert found is not None
        b, here = loops.b, loops.materialise(at)
        if self.lanes == 1:
            return b.select(found, here, otherwise)
        bits = b.op(f"bitcast {found.typed} to i{self.lanes}", f"i{self.lanes}")
        name = f"llvm.cttz.i{self.lanes}"
        lane = b.call(name, bits.elem, 1, bits, extra=", i1 false")
        some = b.op(f"icmp ne i{self.lanes} {bits.ref}, 0", "i1")
        if self.lanes < 64:
            lane = b.op(f"zext {lane.typed} to i64", "i64")
        return b.select(some, b.bin("add", here, lane), otherwise)


def as_extremum(choice: Choice) -> Choice:
    """`choice` as an `Extremum`, if that is what it is."""
    tests = _disjuncts(choice, choice.keep)
    if not tests or len({t.part for t in tests}) != 1:
        return choice
    (key,) = {t.part for t in tests}
    ops = {t.op for t in tests} - {"nan"}
    finds_nan = any(t.op == "nan" for t in tests)
    for op, forms in (("max", ({">="}, {">", "=="})), ("min", ({"<="}, {"<", "=="}))):
        if ops in forms:
            return Extremum(choice, key, op, finds_nan)
    return choice


def _disjuncts(choice: Choice, e: Expr) -> list[_Test] | None:
    """The tests of which one must hold for the old parts to stay, or None if they are others."""
    if isinstance(e, Binary) and e.op == "||":
        sides = [_disjuncts(choice, x) for x in (e.a, e.b)]
        return None if None in sides else [t for side in sides for t in side or ()]
    if isinstance(e, Binary) and e.op == "&&":  # a test, and the old place is before the new one
        for a, b in ((e.a, e.b), (e.b, e.a)):
            if _is_in_order(choice, a):
                return _disjuncts(choice, b)
        return None
    test = _test(choice, e)
    return None if test is None else [test]


def _is_in_order(choice: Choice, e: Expr) -> bool:
    """Whether `e` says no more than that the old parts come from before the new ones."""
    test = _test(choice, e)
    if test is None or test.op not in ("<", "<="):
        return False
    place = choice.news[test.part]
    place = place.a if isinstance(place, Cast) else place
    return is_index(place) and (lane_stride(place, choice.var) or 0) > 0


def _test(choice: Choice, e: Expr) -> _Test | None:
    old = {id(b): n for n, b in enumerate(choice.store.buffers)}
    new = {id(b): n for n, b in enumerate(choice.new)}
    if isinstance(e, Unary) and e.op == "!" and isinstance(e.a, Binary) and e.a.op in _OPPOSITE:
        test = _test(choice, e.a)
        return None if test is None else _Test(test.part, _OPPOSITE[test.op])
    if isinstance(e, Call) and e.name == "isnan" and isinstance(e.args[0], Load):
        part = old.get(id(buffer_of(e.args[0])))
        return None if part is None else _Test(part, "nan")
    if not isinstance(e, Binary) or e.op not in _SWAPPED:
        return None
    if not isinstance(e.a, Load) or not isinstance(e.b, Load):
        return None
    a, b = id(buffer_of(e.a)), id(buffer_of(e.b))
    if a in old and b in new and old[a] == new[b]:
        return _Test(old[a], e.op)
    if a in new and b in old and new[a] == old[b]:
        return _Test(old[b], _SWAPPED[e.op])
    if a == b and a in old and e.op == "!=":
        return _Test(old[a], "nan")
    return None
