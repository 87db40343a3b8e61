"""Assembly: hoisting, counters, the scalar machine against Python, structure, listing."""

from __future__ import annotations

import numpy as np
import pytest
from programs import layer_norm, matmul

from akg_py.ascend import instructions as ins
from akg_py.ascend import isa
from akg_py.ascend.device import load_device
from akg_py.ascend.program import Instruction, Phase, Program, Repeat, WaitFlag, address
from akg_py.ascend.table import table_of
from akg_py.ascend.trace import OPERANDS, trace
from akg_py.errors import InternalError
from akg_py.ir.expr import Select, Var, binary, const, evaluate_index, maximum, minimum


def program_of(*body, cores=1, core=None):
    core = Var("core", lo=0, hi=cores - 1) if core is None else core
    phase = Phase("p", "aiv", core, cores, tuple(body))
    return Program("t", load_device("ascend910b3"), (), (phase,))


def probe(value):
    """An instruction that carries any expression in a stride operand."""
    return ins.vector("VCOPY", "float32", 0, 0, lanes=1, rep=(value, 0, 0), pipe="S")


def seen(program, core=0):
    return trace(program, 0, core)[:, OPERANDS + 5].tolist()


i, j = Var("i", lo=0, hi=9), Var("j", lo=0, hi=9)
FORMS = [
    i * 7 + j * -3 + 5,
    (i * 5 + j) // 4,
    (i * 5 + j) % 4,
    (i - 6) // 4,
    (i - 6) % 4,
    minimum(i * 3, j + 2),
    maximum(i * 3, 10 - j),
    i * j + 1,
    binary("<", i, j),
    binary("<=", i, j),
    binary(">", i, j),
    binary(">=", i, j),
    binary("==", i, j),
    binary("!=", i, j),
    binary("<", i, j) & binary("<", j, const(5)),
    binary("<", i, j) | binary("==", j, const(0)),
    minimum(4, 30 - (i * 10 + j) // 7 * 4),
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_scalar_rows_compute_what_python_does(form):
    nest = Repeat(i, const(10), (Repeat(j, const(10), (probe(form),)),))
    want = [int(evaluate_index(form, {i: a, j: b})) for a in range(10) for b in range(10)]
    assert seen(program_of(nest)) == want


def test_counters_run_on_and_are_constant_inside():
    c, d = Var("c", lo=0), Var("d", lo=0)
    inner = Repeat(j, i % 3, (probe(c * 100 + d), probe(c * 100 + d)), (c,))
    nest = Repeat(i, const(5), (inner, probe(c + 1000)), (d,))
    want, at = [], 0
    for a in range(5):
        for _ in range(a % 3):
            want += [at * 100 + a] * 2
            at += 1
        want.append(at + 1000)
    assert seen(program_of(nest, probe(c + 5000))) == [*want, at + 5000]


def test_extents_of_zero_or_less_run_nothing():
    nest = Repeat(i, const(4), (Repeat(j, 2 - i, (probe(i * 10 + j),)),))
    assert seen(program_of(nest)) == [0, 1, 10]


def test_parameters_of_cores():
    core = Var("core", lo=0, hi=2)
    program = program_of(probe(core * 3 + 1), cores=3, core=core)
    assert [seen(program, k) for k in range(3)] == [[1], [4], [7]]


def test_hoisting_is_position():
    """An expression over the outer loop is one row of the outer loop, used twice."""
    nest = Repeat(i, const(3), (Repeat(j, const(3), (probe(i * 7 + 1), probe(i * 7 + 1 + j))),))
    table = table_of(program_of(nest), 0)
    scalar = isa.SCALAR_NAMES
    names = [scalar[op] if op < len(scalar) else "DEVICE" for op in table.code[:, 0]]
    assert names == ["LOOP", "MADD", "LOOP", "MADD", "DEVICE", "DEVICE", "END", "END"]


def test_select_takes_a_side():
    choice = Select(binary("<", i, const(2)), i + 10, i * 2, "int32")
    assert seen(program_of(Repeat(i, const(4), (probe(choice),)))) == [10, 11, 4, 6]


def test_rows_do_not_grow_with_sizes():
    small, large = (
        table_of(matmul(*shape), 0) for shape in ((1000, 1000, 1000), (9000, 9000, 9000))
    )
    assert len(large.code) <= len(small.code) + 8


@pytest.mark.parametrize(
    "program", [matmul(1024, 1024, 1024), layer_norm(4096, 1024)], ids=lambda p: p.name
)
def test_tables_are_small(program):
    table = table_of(program, 0)
    assert len(table.code) < 120 and table.cores.shape[1] < 160
    assert table.marks >= 2


def test_unknown_vars_and_instructions_are_refused():
    with pytest.raises(InternalError, match="j is used outside its Repeat"):
        table_of(program_of(probe(j)), 0)
    with pytest.raises(InternalError, match="no instruction"):
        Instruction("VADD_f64", (), "V")
    with pytest.raises(InternalError, match="no instruction VADD_f64"):
        ins.vector("VADD", "f64", 0, lanes=1)


def test_listing(golden):
    golden("matmul_listing.txt", matmul(100, 70, 50, tile=(64, 64, 32, 16)).listing())


def test_rows_print_with_their_origin():
    program = matmul(100, 70, 50, tile=(64, 64, 32, 16))
    table = table_of(program, 0)
    row = next(k for k, r in enumerate(table.code) if r[0] == isa.INSTRUCTIONS["MMAD_f16"].number)
    text = table.format_row(row, program, program.phases[0])
    assert text.startswith("MMAD_f16") and "m=min(64" in text and text.endswith("# C += A B")
    wait = next(k for k, n in enumerate(table.nodes) if isinstance(n, WaitFlag))
    assert "wait_flag" in table.format_row(
        int(np.flatnonzero(table.code[:, 14] == wait)[0]), program, program.phases[0]
    )
    assert str(address("UB", 64)) == str(const((5 << 40) + 64))
