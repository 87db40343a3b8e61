"""Assembly: a phase's tree of loops becomes rows of 16 x uint16 over int64 registers.

Each distinct operand expression gets one register. A row that computes it stands right after the
LOOP row of the innermost Repeat it depends on, so hoisting is position. Loops stay loops; nothing
depends on sizes but register contents. `uniform` (END, x3) is the first iteration after this one
whose sizes are others, at most the extent: up to there the time reader may skip.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from akg_py.ascend import isa
from akg_py.ascend.isa import INSTRUCTIONS, PIPE_INDEX
from akg_py.ascend.program import Instruction, Node, Phase, Program, Repeat, SetFlag
from akg_py.errors import InternalError
from akg_py.ir.expr import (
    Affine,
    Binary,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    Var,
    bounds,
    children,
    const,
    maximum,
    minimum,
)
from akg_py.records import dataclass

Row = list[int]
INLINE = -1  # depth of an expression over a counter outside its Repeat: computed where it is used
_ORDERED = {
    "min": isa.MIN,
    "max": isa.MAX,
    "==": isa.EQ,
    "!=": isa.NE,
    "<": isa.LT,
    "<=": isa.LE,
    "&&": isa.MIN,
    "||": isa.MAX,
    "//": isa.DIV,
    "%": isa.MOD,
}
_SWAPPED = {">": isa.LT, ">=": isa.LE}


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What the readers get.

    Attributes:
        code: uint16[rows, 16].
        cores: int64[cores, registers], initial registers of each core.
        flags: (src, dst) pipe names of each flag number.
        nodes: the node each device row came from, by the row's tag.
        registers: expression or name of each register, for listings.
        counters: (register, modulus) of running counters; 0 where the modulus is unknown.
        marks: number of loops the time reader may shorten.
        pipes: mask of the pipes in use.
    """

    code: np.ndarray
    cores: np.ndarray
    flags: tuple[tuple[str, str], ...]
    nodes: tuple[Any, ...]
    registers: tuple[Expr | str, ...]
    counters: np.ndarray
    marks: int
    pipes: int

    def format_row(self, row: int, program: Program, phase: Phase) -> str:
        """The instruction or flag of a row, as in the listing, with its origin."""
        from akg_py.ascend.program import format_node

        node = self.nodes[int(self.code[row, 14])]
        if node is None:
            return isa.SCALAR_NAMES[int(self.code[row, 0])]
        text = format_node(node, program, phase)
        return text if node.origin is None else f"{text}  # {node.origin}"


class _Scope:
    __slots__ = ("body", "header", "serial")

    def __init__(self, serial: int) -> None:
        self.header: list[Row] = []
        self.body: list[Any] = []
        self.serial = serial


class _Assembler:
    def __init__(self, phase: Phase) -> None:
        self.values: list[int] = [0]
        self.names: list[Expr | str] = [const(0)]
        self.constants: dict[int, int] = {0: 0}
        self.vars: dict[int, tuple[int, int]] = {}  # id(Var) -> register, depth
        self.memo: dict[
            Any, tuple[int, int, int]
        ] = {}  # node or key -> register, depth, serial of the scope
        self.scopes = [_Scope(0)]
        self.serial = 0
        self.nodes: list[Node | None] = [None]
        self.marks = 0
        self.pipes = 0
        self.free_memo: dict[int, frozenset[int]] = {}
        self.numbers: dict[Any, int] = {}  # structure of an expression -> its number
        self.number_memo: dict[int, int] = {}
        self.kept: list[Expr] = []  # alive, so that no id is used twice
        self.uniform_memo: dict[tuple[int, int], Expr] = {}
        self.core = self.new(phase.core)
        self.vars[id(phase.core)] = (self.core, 0)
        self.periods: dict[int, int] = {}  # id(Var) -> period of the events over it, 0 unknown
        self.counters: dict[int, int] = {}  # id(Var) -> register
        self.varying: dict[
            int, frozenset[int]
        ] = {}  # id(Repeat) -> its var and all counters advanced inside
        self.sizes: dict[int, list[Expr]] = {}  # id(Repeat) -> sizes and trip counts inside
        self.busy: set[int] = set()  # ids of Repeats with instructions
        self.survey(phase.body)

    # ------------------------------------------------------------ survey of loops, counters, events

    def survey(self, nodes: tuple[Node, ...]) -> tuple[frozenset[int], list[Expr], bool]:
        varying: frozenset[int] = frozenset()
        sizes: dict[int, Expr] = {}
        busy = False
        for node in nodes:
            if isinstance(node, Instruction):
                busy = True
                self.pipes |= 1 << PIPE_INDEX[node.pipe]
                for operand, e in zip(INSTRUCTIONS[node.op].operands, node.operands, strict=True):
                    if operand.role == "size" and not isinstance(e, Const):
                        sizes[self.canonical(e)] = e
            elif isinstance(node, Repeat):
                for c in node.counters:
                    if id(c) not in self.counters:
                        self.counters[id(c)] = self.new(c)
                        self.vars[id(c)] = (self.counters[id(c)], INLINE)
                inner, inner_sizes, inner_busy = self.survey(node.body)
                inner |= {id(c) for c in node.counters}
                self.varying[id(node)] = inner | {id(node.var)}
                self.sizes[id(node)] = inner_sizes
                if inner_busy:
                    self.busy.add(id(node))
                    busy = True
                varying |= inner
                for e in (*inner_sizes, node.extent):
                    if not isinstance(e, Const):
                        sizes[self.canonical(e)] = e
            else:
                self.period(node.event, 0)
        return varying, list(sizes.values()), busy

    def period(self, e: Expr, modulus: int) -> None:
        """Note after how many steps of each Var the event repeats; modulus 0: all of e matters."""
        match e:
            case Const():
                pass
            case Var():
                old = self.periods.get(id(e), 1)
                self.periods[id(e)] = math.lcm(old, modulus)
            case Affine():
                for atom, _ in e.terms:
                    self.period(atom, modulus)
            case Binary(op="%", b=Const(value=n)):
                self.period(e.a, int(n))
            case Binary(op="//", b=Const(value=n)):
                self.period(e.a, modulus * int(n))
            case Binary(op="*"):
                self.period(e.a, modulus)
                self.period(e.b, modulus)
            case _:
                for child in children(e):
                    self.period(child, 0)

    def canonical(self, e: Expr) -> int:
        """A number that equal expressions share."""
        number = self.number_memo.get(id(e))
        if number is None:
            key: Any
            match e:
                case Const():
                    key = ("const", int(e.value))
                case Var():
                    key = ("var", id(e))
                case Affine():
                    terms = sorted((self.canonical(atom), coef) for atom, coef in e.terms)
                    key = (e.const, *terms)
                case _:
                    what = getattr(e, "op", type(e).__name__)
                    key = (what, *(self.canonical(child) for child in children(e)))
            number = self.number_memo[id(e)] = self.numbers.setdefault(key, len(self.numbers))
            self.kept.append(e)
        return number

    def free(self, e: Expr) -> frozenset[int]:
        """Ids of the Vars in e."""
        found = self.free_memo.get(id(e))
        if found is None:
            found = frozenset({id(e)}) if isinstance(e, Var) else frozenset()
            for child in children(e):
                found |= self.free(child)
            self.free_memo[id(e)] = found
            self.kept.append(e)
        return found

    def uniform(self, e: Expr, node: Repeat) -> Expr:
        """The iteration of `node` after this one in which e changes; at most the extent."""
        key = (id(node), self.canonical(e))
        found = self.uniform_memo.get(key)
        if found is None:
            found = self.uniform_memo[key] = self.find_uniform(e, node)
        return found

    def find_uniform(self, e: Expr, node: Repeat) -> Expr:
        used = self.free(e) & self.varying[id(node)]
        if not used:
            return node.extent
        if used != {id(node.var)}:
            return const(0)
        if isinstance(e, Binary) and e.op in ("min", "max"):
            for steady, moving in ((e.a, e.b), (e.b, e.a)):
                if id(node.var) in self.free(steady):
                    continue
                count = self.steady_count(e.op, steady, moving, node)
                if count is not None:
                    return count
        if isinstance(e, (Var, Affine)) and any(
            atom is node.var for atom in ((e,) if isinstance(e, Var) else [a for a, _ in e.terms])
        ):
            return const(0)
        count = node.extent
        for child in children(e):
            part = self.uniform(child, node)
            if isinstance(part, Const) and part.value <= 0:
                return part
            count = part if count is node.extent else minimum(count, part)
        return count

    def steady_count(self, op: str, steady: Expr, moving: Expr, node: Repeat) -> Expr | None:
        """The iteration up to which min or max chooses the side without the loop's var."""
        lo, hi = bounds(moving - steady)
        if (lo >= 0) if op == "min" else (hi <= 0):
            return node.extent
        terms = moving.terms if isinstance(moving, Affine) else ((moving, 1),)
        atoms = [(atom, c) for atom, c in terms if id(node.var) in self.free(atom)]
        if len(atoms) != 1:
            return None
        atom, coef = atoms[0]
        rest = moving - atom * coef
        if (coef < 0) != (op == "min"):
            return const(0)
        slack = rest - steady if op == "min" else steady - rest
        last = self.last_below(atom, slack // abs(coef), node)
        return None if last is None else minimum(node.extent, maximum(last + 1, 0))

    def last_below(self, e: Expr, limit: Expr, node: Repeat) -> Expr | None:
        """The last iteration up to which e <= limit, for an e that grows with the loop's var.

        A remainder counts if only its last value is above the limit: the tail that comes back.
        """
        match e:
            case Var():
                return limit if e is node.var else None
            case Affine():
                atoms = [(atom, c) for atom, c in e.terms if id(node.var) in self.free(atom)]
                if len(atoms) != 1 or atoms[0][1] < 0:
                    return None
                atom, coef = atoms[0]
                return self.last_below(atom, (limit - (e - atom * coef)) // coef, node)
            case Binary(op="//", b=Const(value=n)) if n > 0:
                return self.last_below(e.a, (limit + 1) * int(n) - 1, node)
            case Binary(op="%", a=Affine(terms=terms), b=Const(value=n)):
                moving = [(atom, c) for atom, c in terms if id(node.var) in self.free(atom)]
                if len(moving) == 1 and moving[0][0] is node.var and limit == n - 2:
                    return node.var + _steps_to_last(e, moving[0][1], int(n)) - 1
        return None

    # ------------------------------------------------------------ registers

    def new(self, name: Expr | str, value: int = 0) -> int:
        self.values.append(value)
        self.names.append(name)
        return len(self.values) - 1

    def constant(self, value: int) -> int:
        register = self.constants.get(value)
        if register is None:
            register = self.constants[value] = self.new(Const(value, "int32"), value)
        return register

    def emit(self, key: tuple[int, int, int, int], depth: int, name: Expr | str) -> tuple[int, int]:
        """A register for op(a, b, c), computed in the scope's header at `depth` or in place."""
        if depth != INLINE:
            found = self.memo.get(key)
            if (
                found is not None
                and found[1] < len(self.scopes)
                and self.scopes[found[1]].serial == found[2]
            ):
                return found[0], found[1]
        register = self.new(name)
        row = [key[0], 0, register, *key[1:]]
        if depth == INLINE:
            self.scopes[-1].body.append(row)
        else:
            self.scopes[depth].header.append(row)
            self.memo[key] = (register, depth, self.scopes[depth].serial)
        return register, depth

    def register(self, e: Expr) -> tuple[int, int]:
        """Register and depth of an expression."""
        if isinstance(e, Const):
            return self.constant(int(e.value)), 0
        if isinstance(e, Var):
            found = self.vars.get(id(e))
            if found is None:
                raise InternalError(f"{e.name} is used outside its Repeat")
            return found
        known = self.memo.get(id(e))
        if (
            known is not None
            and known[1] < len(self.scopes)
            and self.scopes[known[1]].serial == known[2]
        ):
            return known[0], known[1]
        register, depth = self.compute(e)
        if depth != INLINE:
            self.memo[id(e)] = (register, depth, self.scopes[depth].serial)
            self.kept.append(e)
        return register, depth

    def compute(self, e: Expr) -> tuple[int, int]:
        match e:
            case Affine():
                terms = sorted(((self.register(atom), coef) for atom, coef in e.terms), key=_depth)
                total, depth = self.constant(e.const), 0
                for (atom, atom_depth), coef in terms:
                    depth = _join(depth, atom_depth)
                    total, depth = self.emit((isa.MADD, total, atom, self.constant(coef)), depth, e)
                return total, depth
            case Binary(op=op):
                (a, depth_a), (b, depth_b) = self.register(e.a), self.register(e.b)
                depth = _join(depth_a, depth_b)
                if op in ("+", "-"):
                    return self.emit(
                        (isa.MADD, a, b, self.constant(1 if op == "+" else -1)), depth, e
                    )
                if op == "*":
                    return self.emit((isa.MADD, 0, a, b), depth, e)
                if op in _SWAPPED:
                    return self.emit((_SWAPPED[op], b, a, 0), depth, e)
                if op in _ORDERED:
                    return self.emit((_ORDERED[op], a, b, 0), depth, e)
            case Select():
                (c, dc), (a, da), (b, db) = (self.register(x) for x in (e.condition, e.a, e.b))
                gap, dg = self.emit((isa.MADD, a, b, self.constant(-1)), _join(da, db), e)
                return self.emit((isa.MADD, b, c, gap), _join(_join(dg, dc), db), e)
            case Cast():
                return self.register(e.a)
            case Unary(op="-"):
                a, depth = self.register(e.a)
                return self.emit((isa.MADD, 0, a, self.constant(-1)), depth, e)
            case Unary():
                a, depth = self.register(e.a)
                return self.emit((isa.EQ, a, 0, 0), depth, e)
        raise InternalError(f"{e} is no index expression of a Program")

    # ------------------------------------------------------------ nodes

    def tag(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def visit(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            if isinstance(node, Instruction):
                operands = [self.register(e)[0] for e in node.operands]
                row = [INSTRUCTIONS[node.op].number, PIPE_INDEX[node.pipe], *operands]
                row += [0] * (14 - len(row))
                self.scopes[-1].body.append([*row, self.tag(node), 0])
            elif isinstance(node, Repeat):
                self.repeat(node)
            else:
                event = self.register(node.event)[0]
                op, pipe = (
                    (isa.SET, node.src) if isinstance(node, SetFlag) else (isa.WAIT, node.dst)
                )
                row = [op, PIPE_INDEX[pipe], node.flag, event] + [0] * 10
                self.scopes[-1].body.append([*row, self.tag(node), 0])

    def repeat(self, node: Repeat) -> None:
        trips = self.register(node.extent)[0]
        count: Expr = const(0)
        uniform, modulus, mark = 0, 1, 0
        periods = [self.periods.get(v, 1) for v in self.varying[id(node)]]
        if id(node) in self.busy and all(periods):
            count = node.extent
            parts = {
                self.canonical(p): p for p in (self.uniform(e, node) for e in self.sizes[id(node)])
            }
            parts.pop(self.canonical(node.extent), None)
            for part in parts.values():
                count = part if count is node.extent else minimum(count, part)
            known = {*self.vars, id(node.var)}
            if not self.free(count) <= known:
                count = const(0)  # sizes that depend on loops inside: nothing is known here
            if not (isinstance(count, Const) and count.value < 2):
                self.marks += 1
                mark = self.marks
                modulus = self.periods.get(id(node.var), 1)
        counter = self.new(node.var)
        depth = len(self.scopes)
        outer = self.vars.get(id(node.var))
        self.vars[id(node.var)] = (counter, depth)
        before = [self.vars[id(c)] for c in node.counters]
        for c in node.counters:
            self.vars[id(c)] = (self.counters[id(c)], depth)
        self.serial += 1
        scope = _Scope(self.serial)
        self.scopes.append(scope)
        if mark:
            uniform = self.register(count)[0]
        self.visit(node.body)
        self.scopes.pop()
        for c, old in zip(node.counters, before, strict=True):
            self.vars[id(c)] = old
            register = self.counters[id(c)]
            scope.body.append([isa.MADD, 0, register, register, self.constant(1), self.constant(1)])
        if outer is None:
            del self.vars[id(node.var)]
        else:
            self.vars[id(node.var)] = outer
        rows = [*scope.header, *scope.body]
        target = self.scopes[-1].body
        tag = self.tag(node)
        target.append(
            [isa.LOOP, 0, counter, trips, len(rows) + 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, tag, mark]
        )
        target.extend(rows)
        target.append(
            [
                isa.END,
                0,
                counter,
                trips,
                len(rows),
                uniform,
                self.constant(modulus),
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                tag,
                mark,
            ]
        )


def _steps_to_last(remainder: Expr, step: int, n: int) -> Expr:
    """Steps until `remainder`, which moves by `step` modulo n, is n - 1; huge if it never is."""
    common = math.gcd(step, n)
    rest = n - 1 - remainder
    steps = rest // common * pow(step // common, -1, n // common) % (n // common)
    return steps + minimum(rest % common, 1) * (1 << 30)


def _depth(term: tuple[tuple[int, int], int]) -> int:
    depth = term[0][1]
    return 1 << 30 if depth == INLINE else depth


def _join(a: int, b: int) -> int:
    return INLINE if INLINE in (a, b) else max(a, b)


def assemble(phase: Phase, program: Program) -> Table:
    """The table of one phase: code shared by its cores, and one register vector per core."""
    a = _Assembler(phase)
    a.visit(phase.body)
    root = a.scopes[0]
    rows = [*root.header, *root.body]
    if len(rows) > 65_000 or len(a.values) > 65_000:
        raise InternalError(
            f"{program.name}: {len(rows)} rows and {len(a.values)} registers exceed a table"
        )
    code = np.zeros((len(rows), 16), np.uint16)
    for i, row in enumerate(rows):
        code[i, : len(row)] = row
    cores = np.repeat(np.array([a.values], np.int64), phase.cores, axis=0)
    cores[:, a.core] = np.arange(phase.cores)
    flags: list[tuple[str, str]] = []
    for flag in phase.flags:
        flags.extend([("", "")] * (flag.first + flag.events - len(flags)))
        for i in range(flag.events):
            flags[flag.first + i] = (flag.src, flag.dst)
    counters = np.array(
        [(register, a.periods.get(c, 1)) for c, register in a.counters.items()], np.int64
    ).reshape(-1, 2)
    return Table(
        code, cores, tuple(flags), tuple(a.nodes), tuple(a.names), counters, a.marks, a.pipes
    )


__all__ = ["Table", "assemble"]


def table_of(program: Program, phase: int) -> Table:
    """The assembled table of a phase, built once."""
    table: Table | None = program.tables.get(phase)
    if table is None:
        table = program.tables[phase] = assemble(program.phases[phase], program)
    return table
