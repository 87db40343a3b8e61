"""Checks: clean Programs are clean, each kind of fault is named, harmful mutants are caught."""

from __future__ import annotations

import numpy as np
import pytest
from adversary import harmful
from mutants import KINDS, mutate, rewrite, with_body
from programs import elementwise, layer_norm, matmul

from akg_py.ascend import instructions as ins
from akg_py.ascend import values
from akg_py.ascend.check import check
from akg_py.ascend.device import load_device
from akg_py.ascend.program import (
    Flag,
    GlobalTensor,
    Instruction,
    Phase,
    Program,
    SetFlag,
    WaitFlag,
    address,
)
from akg_py.errors import InternalError
from akg_py.ir.expr import Var, const

DEVICE = "ascend910b3"


def mutants_of(name):
    return {
        "matmul": lambda: matmul(
            72, 40, 80, "float16", "float32", tile=(32, 32, 32, 16), cores=2, l0c_copies=2
        ),
        "layer_norm": lambda: layer_norm(22, 77, tile=4, cores=2),
    }[name]()


def arrays_for(program, rng):
    whole = "matmul" in program.name
    out = []
    for t in program.tensors:
        data = rng.integers(-4, 5, t.shape) if whole else rng.standard_normal(t.shape)
        out.append(data.astype(t.dtype) if t.role == "input" else np.zeros(t.shape, t.dtype))
    return out


@pytest.mark.parametrize(
    "program",
    [
        matmul(128, 128, 64, tile=(64, 64, 32, 16)),
        matmul(200, 120, 100, "float32", "float32", tile=(64, 64, 64, 32), l0c_copies=2),
        matmul(90, 100, 70, tile=(32, 48, 32, 16), trans_a=True, trans_b=True),
        matmul(90, 100, 70, "int8", "int32", tile=(32, 64, 64, 32)),
        layer_norm(37, 77),
        layer_norm(9, 1000),
        elementwise(10_003),
    ],
    ids=lambda p: p.name,
)
def test_right_programs_are_clean(program):
    rng = np.random.default_rng(0)
    arrays = arrays_for(program, rng)
    assert check(program, arrays) == []
    expected = [a.copy() for a in arrays]
    assert harmful(program, arrays, expected, rng, orders=6) == ""


def run_mutants(name, count, seed):
    """(harmful, missed): a mutant that neither checks nor values see survives every legal order."""
    program, rng = mutants_of(name), np.random.default_rng(seed)
    arrays = arrays_for(program, rng)
    expected = [a.copy() for a in arrays]
    values.execute(program, expected, threads=1, poison=True)
    seen, missed = 0, []
    for i in range(count):
        drawn = mutate(program, KINDS[i % len(KINDS)], rng)
        if drawn is None:
            continue
        mutant, what = drawn
        got = [a.copy() for a in arrays]
        try:
            values.execute(mutant, got, threads=1, poison=True)
            differs = any(
                not np.array_equal(a, b, equal_nan=True) for a, b in zip(got, expected, strict=True)
            )
        except InternalError:
            differs = True
        if differs or check(mutant):
            seen += 1
        elif harmful(mutant, arrays, expected, rng):
            missed.append(what)
    return seen, missed


@pytest.mark.parametrize("name", ["matmul", "layer_norm"])
def test_harmful_mutants_are_seen(name):
    seen, missed = run_mutants(name, 90, 3)
    assert not missed
    assert seen > 40


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matmul", "layer_norm"])
def test_harmful_mutants_are_seen_500(name):
    seen, missed = run_mutants(name, 500, 11)
    assert not missed
    assert seen > 250


@pytest.mark.parametrize("name", ["matmul", "layer_norm"])
def test_every_needed_flag_is_missed_by_the_checks(name):
    """Dropping the SETs or WAITs of one flag, or both, is reported (values can't see it)."""
    program = mutants_of(name)
    for flag in program.phases[0].flags:
        mine = range(flag.first, flag.first + flag.events)
        found = []
        for kinds in ((SetFlag,), (WaitFlag,), (SetFlag, WaitFlag)):
            gone = lambda n, kinds=kinds: isinstance(n, kinds) and n.flag in mine  # noqa: E731, B023
            body = rewrite(program.phases[0].body, lambda n, gone=gone: () if gone(n) else (n,))
            found.append({f.kind for f in check(with_body(program, body))})
        assert "flag left over" in found[1] or "flag set twice" in found[1]
        assert "deadlock" in found[0]
        if not (
            name == "layer_norm" and flag.first == 0
        ):  # gamma and beta come on the same queue as x
            assert any("race" in k for k in found[2]), flag


def one_phase(body, flags=(), tensors=(), cores=1):
    phase = Phase("p", "aiv", Var("core", lo=0, hi=cores - 1), cores, tuple(body), tuple(flags))
    return Program("t", load_device(DEVICE), tuple(tensors), (phase,))


X = GlobalTensor("x", "float32", (64,), "input", 0)
Y = GlobalTensor("y", "float32", (64,), "output", 1)
LOAD = ins.copy(address("UB", 0), address(X), 1, 256, 0, 0, "MTE2", "user.py:1")
STORE = ins.copy(address(Y), address("UB", 0), 1, 256, 0, 0, "MTE3", "user.py:2")
ZERO = const(0)


def flag(src, dst, first=0):
    return SetFlag(src, dst, first, ZERO), WaitFlag(src, dst, first, ZERO), Flag(src, dst, first, 1)


def kinds(program):
    return {f.kind for f in check(program)}


def test_race_names_both_parties():
    faults = check(one_phase([LOAD, STORE], tensors=(X, Y)))
    assert [f.kind for f in faults] == ["read after write race"]
    assert "user.py:2" in str(faults[0]) and "user.py:1" in str(faults[0])


def test_kinds():
    s, w, f = flag("MTE2", "MTE3")
    good = [LOAD, s, w, STORE]
    assert kinds(one_phase(good, [f], (X, Y))) == set()
    assert kinds(one_phase([STORE], tensors=(X, Y))) == {"undefined read"}
    assert kinds(one_phase([LOAD, s, w], [f], (X, Y))) == {"not written"}
    assert kinds(one_phase([*good, STORE], [f], (X, Y))) == {"written twice"}
    assert kinds(one_phase([*good, s], [f], (X, Y))) >= {"flag left over"}
    assert kinds(one_phase([w, *good], [f], (X, Y))) >= {"deadlock"}
    assert kinds(one_phase([LOAD, s, s, w, STORE], [f], (X, Y))) >= {"flag set twice"}
    assert kinds(one_phase([*good, LOAD], [f], (X, Y))) == {"write after read race"}
    assert kinds(one_phase(good, [f], (X, Y), cores=2)) == {"written twice"}
    assert "flag used again too early" in kinds(one_phase([LOAD, s, w, s, w, STORE], [f], (X, Y)))
    assert kinds(one_phase([*good, SetFlag("V", "S", 5, ZERO)], [f], (X, Y))) >= {"no such flag"}


def vector(dst, src, **options):
    return ins.vector(
        "VADDS", "float32", address("UB", dst), address("UB", src), 0, origin="user.py:5", **options
    )


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        (vector(4, 0, lanes=8), "alignment"),
        (vector(512, 0, lanes=65), "limit"),
        (vector(512, 0, lanes=8, repeats=256, rep=(0, 0, 0)), "limit"),
        (vector(32, 0, lanes=64), "overlap"),
        (vector(196608 - 32, 0, lanes=64), "bounds"),
        (vector(1024, 0, lanes=8, rep=(32, 32, 0)), ""),
        (vector(0, 0, lanes=64), ""),
        (
            ins.vector(
                "VADDS", "float32", address("UB", 1028), address("UB", 4), 0, lanes=1, pipe="S"
            ),
            "read after write race",
        ),
    ],
)
def test_rules_of_one_instruction(node: Instruction, kind: str):
    s, w, f = flag("MTE2", "MTE3")
    s2, w2, f2 = flag("MTE2", "V", 1)
    s3, w3, f3 = flag("V", "MTE3", 2)
    program = one_phase([LOAD, s2, w2, s, w, node, s3, w3, STORE], [f, f2, f3], (X, Y))
    found = {x.kind for x in check(program)}
    assert (kind in found) if kind else not found, found


def test_cores_must_not_read_what_others_write_in_the_phase():
    w_space = GlobalTensor("w", "float32", (128,), "workspace", 2)
    core = Var("core", lo=0, hi=1)
    s, w, f = flag("MTE2", "MTE3")
    s2, w2, f2 = flag("MTE3", "MTE2", 1)
    store = ins.copy(address(w_space, core * 256), address("UB", 0), 1, 256, 0, 0, "MTE3")
    fetch = ins.copy(address("UB", 512), address(w_space, 256 - core * 256), 1, 256, 0, 0, "MTE2")
    mine = ins.copy(address("UB", 512), address(w_space, core * 256), 1, 256, 0, 0, "MTE2")
    out = GlobalTensor("y", "float32", (128,), "workspace", 1)

    def program(*tail):
        phase = Phase("p", "aiv", core, 2, (LOAD, s, w, store, *tail), (f, f2))
        return Program("t", load_device(DEVICE), (X, out, w_space), (phase,))

    assert kinds(program(s2, w2, mine)) == set()
    assert kinds(program(mine)) == {"read after write race"}
    assert "race between cores" in kinds(program(s2, w2, fetch)) | {"undefined read"} - set()
    assert kinds(program(s2, w2, fetch)) <= {"race between cores", "undefined read"}


def test_a_phase_may_read_what_an_earlier_one_wrote():
    s, w, f = flag("MTE2", "MTE3")
    temporary = GlobalTensor("w", "float32", (64,), "workspace", 2)
    first = (LOAD, s, w, ins.copy(address(temporary), address("UB", 0), 1, 256, 0, 0, "MTE3"))
    second = (ins.copy(address("UB", 0), address(temporary), 1, 256, 0, 0, "MTE2"), s, w, STORE)
    core = Var("core", lo=0, hi=0)
    phases = tuple(
        Phase(n, "aiv", core, 1, body, (f,)) for n, body in (("a", first), ("b", second))
    )
    assert check(Program("t", load_device(DEVICE), (X, Y, temporary), phases)) == []
    assert {
        x.kind for x in check(Program("t", load_device(DEVICE), (X, Y, temporary), phases[1:]))
    } == {"undefined read"}
