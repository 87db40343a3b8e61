"""Expressions as LLVM IR: scalar values, or one lane per iteration of a vector loop.

A value that is the same in all lanes stays scalar until an operation needs it wide. What a guard
protects is reached by a branch in scalar code and through a mask in vector code.
"""

from __future__ import annotations

from collections.abc import Callable

from akg_py import dtypes
from akg_py.codegen import arithmetic, math
from akg_py.codegen.indices import Indices, Linear
from akg_py.codegen.llvm import (
    ELEM_BYTES,
    Block,
    Builder,
    Val,
    constant,
    constant_lanes,
    suffix,
)
from akg_py.codegen.registers import Registers
from akg_py.codegen.streams import LINE_BYTES, ONCE_BYTES, PREFETCH_BYTES, Streams
from akg_py.codegen.strides import flat_index, strides
from akg_py.errors import InternalError
from akg_py.ir.expr import (
    COMPARISONS,
    Affine,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    bounds,
    is_index,
    loads,
)
from akg_py.ir.stmt import Buffer, Store, buffer_of

MAX_SPAN = 4  # vectors that a load at known steps may span

FIRST_CACHE, SECOND_CACHE, NO_OTHER_CACHE = 3, 2, 0  # how LLVM calls them when it prefetches


class Values(Indices):
    """Emits expressions, loads and stores."""

    def __init__(self, builder: Builder) -> None:
        super().__init__(builder)
        self.pointers: dict[int, str] = {}
        self.mask: Val | None = None  # lanes that run; None is all
        self.guarded = False  # whether the mask may be empty
        self.registers: dict[int, Registers] = {}
        self.given: dict[int, Val] = {}  # values that stand for buffers
        self.streaming: frozenset[int] = frozenset()  # buffers whose stores go around the cache
        self.streams = Streams()
        self.counters: list[tuple[str, Block]] = []  # of the loops around, and the blocks before
        self.reducing = False  # whether a loop over lanes reduces what it reads
        self.ahead: dict[int, int] = {}  # buffers of which a later row is fetched: bytes to it
        self.tile: dict[int, list[Val]] = {}  # rows of transposed loads, by id of their indices
        self.tile_row = 0

    # ------------------------------------------------------------ expressions

    def value(self, e: Expr) -> Val:
        """`e` in the compute type of its dtype."""
        match e:
            case Const():
                return arithmetic.literal(e.value, e.dtype)
            case Var() | Affine():
                return (
                    self.materialise(self.linear(e), "i32")
                    if e.dtype == "int32"
                    else self._affine_value(e)
                )
            case Binary():
                return self._binary(e)
            case Unary():
                return self._unary(e)
            case Cast():
                return self._cast(e)
            case Select():
                return self._select(e)
            case Call():
                return self._call(e)
            case Load():
                return self.load(buffer_of(e), e.indices)
        raise InternalError(f"no code for {type(e).__name__}")

    def _affine_value(self, e: Expr) -> Val:
        return arithmetic.convert(self.b, self.materialise(self.linear(e)), "int64", e.dtype)

    def _unary(self, e: Unary) -> Val:
        a = self.value(e.a)
        if e.op == "!":
            return self.b.invert(arithmetic.convert(self.b, a, e.a.dtype, "bool"))
        if dtypes.is_float(e.dtype):
            return self.b.op(f"fneg {a.typed}", a.elem, a.lanes)
        return self.b.bin("sub", constant(0, a.elem), a)

    def _cast(self, e: Cast) -> Val:
        if is_index(e.a) and not isinstance(e.a, Const):
            narrow = self.fits_int32(e.a)
            v = self.materialise(self.linear(e.a), "i32" if narrow else "i64")
            return arithmetic.convert(self.b, v, "int32" if narrow else "int64", e.dtype)
        return arithmetic.convert(self.b, self.value(e.a), e.a.dtype, e.dtype)

    def _binary(self, e: Binary) -> Val:
        if e.op in ("&&", "||"):
            return self._logical(e)
        if is_index(e.a) and is_index(e.b):
            if e.op in COMPARISONS:
                return self._compare_indices(e)
            if is_index(e):
                return self.materialise(self.linear(e), "i32")
        x, y = self.value(e.a), self.value(e.b)
        dtype = e.a.dtype
        if e.op == "pow":
            if dtypes.is_float(dtype):
                return arithmetic.round_to(self.b, math.call(self.b, "pow", [x, y]), dtype)
            return arithmetic.power_of_ints(self.b, x, y, dtype)
        return arithmetic.binary(self.b, e.op, x, y, dtype)

    def _compare_indices(self, e: Binary) -> Val:
        x, y = self.linear(e.a), self.linear(e.b)
        narrow = (
            self.fits_int32(e.a) and self.fits_int32(e.b) and not (x.is_uniform and y.is_uniform)
        )
        elem, dtype = ("i32", "int32") if narrow else ("i64", "int64")
        return arithmetic.binary(
            self.b, e.op, self.materialise(x, elem), self.materialise(y, elem), dtype
        )

    def _logical(self, e: Binary) -> Val:
        if all(stays_inside(buffer_of(x), x.indices) for x in loads(e.b)):
            return arithmetic.binary(self.b, e.op, self.value(e.a), self.value(e.b), "bool")
        taken, other = constant(e.op == "||", "i1"), e.b
        condition = self.value(e.a)
        if e.op == "&&":
            return self.choose(condition, lambda: self.value(other), lambda: taken)
        return self.choose(condition, lambda: taken, lambda: self.value(other))

    def _select(self, e: Select) -> Val:
        condition = self.value(e.condition)
        if any(
            e.guards or not stays_inside(buffer_of(x), x.indices)
            for side in (e.a, e.b)
            for x in loads(side)
        ):
            return self.choose(condition, lambda: self.value(e.a), lambda: self.value(e.b))
        return self.b.select(condition, self.value(e.a), self.value(e.b))

    def choose(self, condition: Val, yes: Callable[[], Val], no: Callable[[], Val]) -> Val:
        """The value of the side that `condition` names; the other side's loads don't happen."""
        if condition.lanes > 1:
            x = self._under(condition, yes)
            y = self._under(self.b.invert(condition), no)
            return self.b.select(condition, x, y)
        sides = [self.b.block("then"), self.b.block("else")]
        done = self.b.block("choice")
        self.b.branch(condition, sides[0], sides[1])
        ends: list[tuple[Val, Block]] = []
        for block, make in zip(sides, (yes, no), strict=True):
            self.b.at = block
            ends.append((make(), self.b.at))
        lanes = max(v.lanes for v, _ in ends)
        incoming = []
        for v, block in ends:
            self.b.at = block
            incoming.append((self.b.splat(v, lanes).ref, self.b.at))
            self.b.jump(done)
        self.b.at = done
        return self.b.phi(ends[0][0].elem, lanes, incoming)

    def _under(self, condition: Val, make: Callable[[], Val]) -> Val:
        mask, guarded = self.mask, self.guarded
        self.mask, self.guarded = self.b.both(mask, condition), True
        result = make()
        self.mask, self.guarded = mask, guarded
        return result

    def _call(self, e: Call) -> Val:
        source = e.args[0].dtype
        args = [self.value(a) for a in e.args]
        if e.dtype == "bool":
            return math.classify(self.b, e.name, args[0], source)
        if not dtypes.is_float(e.dtype):
            return math.integer_call(self.b, e.name, args[0], e.dtype)
        wide = "float64" if e.dtype == "float64" else "float32"
        args = [
            arithmetic.convert(self.b, a, s.dtype, wide) if s.dtype != e.dtype else a
            for a, s in zip(args, e.args, strict=True)
        ]
        return arithmetic.round_to(self.b, math.call(self.b, e.name, args), e.dtype)

    # ------------------------------------------------------------ memory

    def position(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Linear:
        """The element number of an access."""
        flat = flat_index(buffer, indices)
        if flat is not None:
            return self.linear(flat)
        total = Linear()
        for e, stride in zip(indices, strides(buffer), strict=True):
            total = self.add(total, self.linear(e), stride)
        return total

    def load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Val:
        """An element for each lane, in the compute type."""
        given = self.given.get(id(buffer))
        if given is not None:
            return given
        return arithmetic.load_form(self.b, self.load_raw(buffer, indices), buffer.dtype)

    def load_raw(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Val:
        """An element for each lane, in the memory type."""
        if id(indices) in self.tile:
            return self.tile[id(indices)][self.tile_row]
        where = self.position(buffer, indices)
        held = self.registers.get(id(buffer))
        return held.read(self, where) if held is not None else self.read(buffer, where)

    def read(self, buffer: Buffer, where: Linear) -> Val:
        """Elements in the memory type."""
        elem = arithmetic.memory_elem(buffer.dtype)
        align = ELEM_BYTES[elem]
        if where.is_uniform:
            pointer = self._pointer(buffer, where, elem)
            if self.guarded and self.mask is not None:
                some = self._any(self.mask)
                base = self.pointers[id(buffer)]
                pointer = self.b.op(f"select i1 {some.ref}, ptr {pointer}, ptr {base}", "ptr").ref
            return self.b.op(f"load {elem}, ptr {pointer}, align {align}", elem)
        if where.extra is None and where.lane == 1:
            return self._read_run(buffer, where, elem)
        if where.extra is None:
            return self._read_steps(buffer, where, elem)
        if self.mask is None:
            return self._read_run_or_each(buffer, where, elem)
        return self._gather(self._pointers(buffer, where, elem), elem, align)

    def _read_run_or_each(self, buffer: Buffer, where: Linear, elem: str) -> Val:
        """Elements at numbers known only here: where they are neighbours after all, one load.

        So are those of `x[(j + 7) % n]`, but at the end, and of most indices that are clamped.
        """
        places = self.materialise(where)
        first = self.b.lane(places, 0)
        run = self.b.bin("add", first, constant_lanes(list(range(self.lanes)), "i64"))
        is_apart = self._any(self.b.compare("ne", places, run))

        def each() -> Val:
            if not self.b.module.processor.has_fast_gather:
                return self._read_each(buffer, Linear(extra=places), elem)
            pointers = self._pointers(buffer, Linear(extra=places), elem)
            return self._gather(pointers, elem, ELEM_BYTES[elem])

        together = Linear({first.ref: 1}, lane=1)
        return self.choose(is_apart, each, lambda: self._read_run(buffer, together, elem))

    def _gather(self, pointers: str, elem: str, align: int) -> Val:
        """The elements that the lanes that run point at, zero for the others."""
        mask = self.mask or constant(True, "i1")
        rest = Val("zeroinitializer", elem, self.lanes)
        name = f"llvm.masked.gather.{suffix(rest)}.v{self.lanes}p0"
        self._declare(
            name,
            f"declare {rest.type} @{name}(<{self.lanes} x ptr>, <{self.lanes} x i1>, {rest.type})",
        )
        wide = self.b.splat(mask, self.lanes)
        return self.b.op(
            f"call {rest.type} @{name}(<{self.lanes} x ptr> align {align} {pointers}, "
            f"{wide.typed}, {rest.typed})",
            elem,
            self.lanes,
        )

    def _read_steps(self, buffer: Buffer, where: Linear, elem: str) -> Val:
        """Elements at known steps: if they span little, loads of all of it and shuffles."""
        offsets = where.offsets(self.lanes)
        low = min(offsets)
        span = max(offsets) - low + 1
        is_repeated = len(set(offsets)) < len(offsets)
        if span > MAX_SPAN * self.lanes or (is_repeated and self.mask is not None):
            if self.mask is None:
                return self._read_each(buffer, where, elem)
            return self._gather(self._pointers(buffer, where, elem), elem, ELEM_BYTES[elem])
        lanes, mask = self.lanes, self.mask
        self.lanes = width = min(lanes, 1 << (span.bit_length() - 1))
        starts = [*range(0, span - width, width), span - width]  # the last ends with the span
        parts = []
        for start in starts:
            if mask is not None:
                self.mask = self._spread(mask, [n - low - start for n in offsets], width)
            at = Linear(where.terms, where.const + low + start, 1)
            parts.append(self._read_run(buffer, at, elem))
        self.lanes, self.mask = lanes, mask
        result = parts[0]
        order = [min(n - low, width - 1) for n in offsets]
        for start, part in zip(starts[1:], parts[1:], strict=True):
            for lane, n in enumerate(offsets):
                if n - low - start >= 0:
                    order[lane] = result.lanes + min(n - low - start, width - 1)
            result, order = self.b.shuffle(result, order, part), list(range(lanes))
        return result if len(parts) > 1 else self.b.shuffle(result, order)

    def _spread(self, mask: Val, places: list[int], width: int) -> Val:
        """A mask of `width` lanes: true in the places of the lanes that run."""
        found = {n: lane for lane, n in enumerate(places)}
        mask = self.b.splat(mask, len(places))
        none = Val("zeroinitializer", "i1", mask.lanes)
        return self.b.shuffle(mask, [found.get(n, mask.lanes) for n in range(width)], none)

    def _read_each(self, buffer: Buffer, where: Linear, elem: str) -> Val:
        """Element by element, which some processors do faster than a gather."""
        align = ELEM_BYTES[elem]
        places = None if where.extra is None else self.materialise(where)
        result = Val("poison", elem, self.lanes)
        for n, offset in enumerate(where.offsets(self.lanes)):
            if places is None:
                at = self._pointer(buffer, Linear(where.terms, where.const + offset), elem)
            else:
                base, index = self.pointers[id(buffer)], self.b.lane(places, n)
                at = self.b.op(f"getelementptr {elem}, ptr {base}, i64 {index.ref}", "ptr").ref
            one = self.b.op(f"load {elem}, ptr {at}, align {align}", elem)
            result = self.b.insert(result, one, n)
        return result

    def _read_run(self, buffer: Buffer, where: Linear, elem: str) -> Val:
        align = ELEM_BYTES[elem]
        pointer = self._pointer(buffer, where, elem)
        size = align * self.lanes
        if self.mask is None and where.const * align % LINE_BYTES < size:  # once for each line
            if id(buffer) in self.ahead:
                self._prefetch(pointer, size, self.ahead[id(buffer)], SECOND_CACHE)
            elif self.streaming and id(buffer) in self.streams.loads:
                self._prefetch(pointer, size, PREFETCH_BYTES, FIRST_CACHE)
            elif self.reducing and id(buffer) in self.streams.once:
                self._prefetch(pointer, size, ONCE_BYTES, NO_OTHER_CACHE)
        return self.b.load(pointer, elem, self.lanes, align, self.mask)

    def read_words(self, buffer: Buffer, where: Linear, size: int) -> Val:
        """`size` adjacent elements as `i32`: the word at `where`, or one for each lane."""
        elem = arithmetic.memory_elem(buffer.dtype)
        align = ELEM_BYTES[elem]
        if where.lane not in (0, size):
            return self._gather(self._pointers(buffer, where, elem), "i32", align)
        lanes = 1 if where.is_uniform else self.lanes
        pointer = self._pointer(buffer, where, elem)
        return self.b.load(pointer, "i32", lanes, align, None if lanes == 1 else self.mask)

    def write_words(self, buffer: Buffer, where: Linear, words: Val) -> None:
        """Store adjacent elements given as one `i32` for each lane, side by side."""
        elem = arithmetic.memory_elem(buffer.dtype)
        self.b.store(self._pointer(buffer, where, elem), words, ELEM_BYTES[elem], self.mask)

    def store(self, s: Store) -> None:
        """All values, then all stores."""
        for buffer in s.buffers:
            held = self.registers.get(id(buffer))
            if held is not None:
                held.reach(self, self.position(buffer, s.indices))
        values = [self.stored_form(s, n) for n in range(len(s.buffers))]
        for buffer, value in zip(s.buffers, values, strict=True):
            where = self.position(buffer, s.indices)
            held = self.registers.get(id(buffer))
            if held is not None:
                held.write(self, where, value)
            else:
                self.write(buffer, where, value)

    def stored_form(self, s: Store, n: int) -> Val:
        """A value of a Store as memory holds it."""
        buffer, e = s.buffers[n], s.values[n]
        if isinstance(e, Load) and is_copy(buffer, e) and id(e.source) not in self.given:
            return self.load_raw(buffer_of(e), e.indices)
        return arithmetic.store_form(self.b, self.stored_value(s, n), buffer.dtype)

    def stored_value(self, s: Store, n: int) -> Val:
        value = s.values[n]
        return arithmetic.convert(self.b, self.value(value), value.dtype, s.buffers[n].dtype)

    def write(self, buffer: Buffer, where: Linear, value: Val) -> None:
        """Store elements given in the memory type."""
        elem = arithmetic.memory_elem(buffer.dtype)
        align = ELEM_BYTES[elem]
        if self.lanes == 1:
            self.b.emit(
                f"store {elem} {value.ref}, ptr {self._pointer(buffer, where, elem)}, align {align}"
            )
            return
        value = self.b.splat(value, self.lanes)
        if where.lane == 1 and where.extra is None:
            hint = ""
            if id(buffer) in self.streaming:
                hint = f", {self.b.module.around_cache()}"
                if self.mask is None:
                    align = min(LINE_BYTES, align * self.lanes)
                if buffer.dtype == "float16":
                    value = self._as_bits(buffer, value)
            pointer = self._pointer(buffer, where, elem)
            self.b.store(pointer, value, align, self.mask, hint)
            return
        if self.mask is None and where.extra is None:
            offsets = where.offsets(self.lanes)
            low = min(offsets)
            if sorted(offsets) == list(range(low, low + self.lanes)):
                order = [offsets.index(low + n) for n in range(self.lanes)]
                run = Linear(where.terms, where.const + low, 1)
                self.write(buffer, run, self.b.shuffle(value, order))
                return
            if not self.b.module.processor.has_fast_gather:
                for n, offset in enumerate(offsets):
                    at = self._pointer(buffer, Linear(where.terms, where.const + offset), elem)
                    self.b.emit(
                        f"store {elem} {self.b.lane(value, n).ref}, ptr {at}, align {align}"
                    )
                return
        pointers = self._pointers(buffer, where, elem)
        name = f"llvm.masked.scatter.{suffix(value)}.v{self.lanes}p0"
        self._declare(
            name, f"declare void @{name}({value.type}, <{self.lanes} x ptr>, <{self.lanes} x i1>)"
        )
        mask = self.b.splat(self.mask or constant(True, "i1"), self.lanes)
        self.b.emit(
            f"call void @{name}({value.typed}, "
            f"<{self.lanes} x ptr> align {align} {pointers}, {mask.typed})"
        )

    def _prefetch(
        self, pointer: str, size: int, distance: int, cache: int, writes: bool = False
    ) -> None:
        """Ask for `size` bytes at `distance` from `pointer`, which are used soon."""
        self._declare("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for line in range(0, size, LINE_BYTES):
            ref = self.b.op(f"getelementptr i8, ptr {pointer}, i64 {distance + line}", "ptr").ref
            kinds = f"i32 {int(writes)}, i32 {cache}, i32 1"
            self.b.hint(f"call void @llvm.prefetch.p0(ptr {ref}, {kinds})")

    def fetch(self, buffer: Buffer, where: Linear, distance: int, cache: int = FIRST_CACHE) -> None:
        """Ask for what lies `distance` elements behind `where`, for all lanes."""
        elem = arithmetic.memory_elem(buffer.dtype)
        size = ELEM_BYTES[elem]
        pointer = self._pointer(buffer, where, elem)
        self._prefetch(pointer, size * self.lanes, size * distance, cache)

    def fetch_to_store(self, buffer: Buffer, indices: tuple[Expr, ...], distance: int) -> None:
        """Ask for the line `distance` bytes behind an element, which is stored to soon."""
        pointer = self.address(buffer, self.position(buffer, indices))
        self._prefetch(pointer, 1, distance, FIRST_CACHE, writes=True)

    def address(self, buffer: Buffer, where: Linear) -> str:
        """The address of an element."""
        return self._pointer(buffer, where, arithmetic.memory_elem(buffer.dtype))

    def _pointer(self, buffer: Buffer, where: Linear, elem: str) -> str:
        """The address of the lane 0 element."""
        ref = self.pointers.get(id(buffer))
        if ref is None:
            raise InternalError(f"the buffer {buffer.name} is not alive here")
        terms = dict(where.terms)
        if self.counters:
            counter, before = self.counters[-1]
            step = terms.pop(counter, 0)
            fixed = {"%begin", *(outer for outer, _ in self.counters[:-1])}
            is_known = self.b.depths.get(ref, -1) < len(self.counters)  # before the innermost loop
            if terms and is_known and fixed.issuperset(terms):
                ref, terms = self._fixed(before, ref, terms, elem), {}
            if step:
                terms[counter] = step
        shared = self.uniform(Linear(terms))
        for part in (shared, constant(where.const, "i64") if where.const else None):
            if part is not None:
                ref = self.b.op(f"getelementptr {elem}, ptr {ref}, i64 {part.ref}", "ptr").ref
        return ref

    def _fixed(self, before: Block, ref: str, terms: dict[str, int], elem: str) -> str:
        """The part of an address that the innermost loop doesn't change, made before the loop.

        LLVM doesn't see where it comes from. It would look for the best way to step through all
        loops around, which takes longer than all the rest of code generation.
        """
        key = f"fixed {elem} {ref} {terms}"
        known = before.known.get(key)
        if known is None:
            here, self.b.at = self.b.at, before
            offset = self.uniform(Linear(terms))
            assert offset is not None
            at = self.b.op(f"getelementptr {elem}, ptr {ref}, i64 {offset.ref}", "ptr")
            known = before.known[key] = self.b.call("llvm.strip.invariant.group.p0", "ptr", 1, at)
            self.b.at = here
        return known.ref

    def _as_bits(self, buffer: Buffer, value: Val) -> Val:
        """The bits of half floats, so that LLVM doesn't see that they are some.

        For AVX-512 it has no store of half floats around the cache, and would make a plain one.
        """
        zero = self.b.entry.known.get("zero")
        if zero is None:
            here, self.b.at = self.b.at, self.b.entry
            base = Val(self.pointers[id(buffer)], "ptr")
            hidden = self.b.call("llvm.strip.invariant.group.p0", "ptr", 1, base)
            ends = [self.b.op(f"ptrtoint ptr {p.ref} to i64", "i64") for p in (hidden, base)]
            zero = self.b.at.known["zero"] = self.b.cast("trunc", self.b.bin("sub", *ends), "i16")
            self.b.at = here
        return self.b.bin("or", value, zero)

    def _pointers(self, buffer: Buffer, where: Linear, elem: str) -> str:
        index = self.b.splat(self.materialise(where), self.lanes)
        base = self.pointers[id(buffer)]
        return self.b.op(f"getelementptr {elem}, ptr {base}, {index.typed}", "ptr").ref

    def _any(self, lanes: Val) -> Val:
        """Whether any lane is true."""
        name = f"llvm.vector.reduce.or.v{lanes.lanes}i1"
        self._declare(name, f"declare i1 @{name}({lanes.type})")
        return self.b.op(f"call i1 @{name}({lanes.typed})", "i1")

    def _declare(self, name: str, text: str) -> None:
        self.b.module.declarations.setdefault(name, text)


def is_copy(buffer: Buffer, value: Expr) -> bool:
    """Whether a stored value is an element of another buffer, whose bits are kept."""
    return isinstance(value, Load) and buffer_of(value).dtype == buffer.dtype


def stays_inside(buffer: Buffer, indices: tuple[Expr, ...]) -> bool:
    """Whether bounds show that an access is inside of its buffer."""
    for index, extent in zip(indices, buffer.shape, strict=True):
        if not is_index(index):
            return False
        lo, hi = bounds(index)
        if lo < 0 or hi >= extent:
            return False
    return True
