"""Guards that only the last step of a loop needs: where they go, and that no value changes."""

from __future__ import annotations

from typing import Any

import pytest

import akg_py as akg
from akg_py import te
from akg_py.codegen.guards import unguard_whole_steps
from akg_py.ir.stmt import Alloc, For, Func, If, Seq, walk_stmts
from akg_py.ir.verify import verify
from tests.codegen.funcs import at, axis, buffer, check, func, loop, put


def lane_sums(n: int, lanes: int, kind: str = "vector", rows: int = 3) -> Func:
    """Y[r, lane] = the sum of X[r, step * lanes + lane] for all that are below `n`."""
    steps = -(-n // lanes)
    X, Y = buffer("X", (rows, n)), buffer("Y", (rows, lanes))
    r, step, lane = axis("r", rows), axis("step", steps), axis("lane", lanes)
    k = step * lanes + lane
    add = put(Y, (r, lane), at(Y, r, lane) + at(X, r, k))
    return func(
        [X, Y], [Y], loop(step, steps, loop(r, rows, loop(lane, lanes, If(k < n, add), kind)))
    )


def guards(f: Func) -> int:
    return sum(isinstance(s, If) for s in walk_stmts(f.body))


@pytest.mark.parametrize("n", [17, 31, 33, 100, 1000, 1001])
@pytest.mark.parametrize("kind", ["vector", "serial"])
def test_the_last_step_ends_earlier(n: int, kind: str) -> None:
    f = lane_sums(n, 16, kind)
    split = unguard_whole_steps(f)
    verify(split, "guards")
    assert guards(f) == 1 and guards(split) == 0
    whole, last = split.body.stmts  # type: ignore[attr-defined]
    assert isinstance(whole, For) and whole.extent.value == n // 16  # type: ignore[attr-defined]
    counted = [s.extent.value for s in walk_stmts(last) if isinstance(s, For)]  # type: ignore
    assert counted == [3, n % 16]
    check(f)
    check(split)


@pytest.mark.parametrize("n, guarded", [(72, False), (70, True), (66, True)])
def test_groups(n: int, guarded: bool) -> None:
    """Lanes of four elements end where the guard does if that is between two groups."""
    X, Y = buffer("X", (n,), "int8"), buffer("Y", (4,), "int32")
    step, lane, e = axis("step", 5), axis("lane", 4), axis("e", 4)
    k = step * 16 + lane * 4 + e
    add = put(Y, (lane,), at(Y, lane) + at(X, k).astype("int32"))
    f = func([X, Y], [Y], loop(step, 5, loop(lane, 4, loop(e, 4, If(k < n, add)))))
    split = unguard_whole_steps(f)
    verify(split, "guards")
    whole, last = split.body.stmts  # type: ignore[attr-defined]
    assert not any(isinstance(s, If) for s in walk_stmts(whole))
    assert any(isinstance(s, If) for s in walk_stmts(last)) == guarded
    check(f)
    check(split)


def stays(f: Func) -> None:
    assert str(unguard_whole_steps(f)) == str(f)
    check(f)


def test_what_stays() -> None:
    X, Y = buffer("X", (40,)), buffer("Y", (40,))
    i, j = axis("i", 10), axis("j", 4)
    k = i * 4 + j
    write = put(Y, (k,), at(X, k) + 1.0)

    def nest(condition: Any, orelse: Any = None, kind: str = "serial") -> Func:
        return func([X, Y], [Y], loop(i, 10, loop(j, 4, If(condition, write, orelse)), kind))

    stays(nest(k < 30))  # more than the last step is guarded
    stays(nest(i + j < 12))  # and here steps overlap
    stays(nest(at(X, k) < 3.0))  # no index
    stays(nest(k < 38, put(Y, (k,), at(X, k))))  # something else happens there
    stays(nest(k < 38, kind="parallel"))
    beside = Seq((If(k < 38, write), put(Y, (k,), at(Y, k) * 2.0)))
    stays(func([X, Y], [Y], loop(i, 10, loop(j, 4, beside))))
    row = buffer("row", (4,))
    inside = Alloc(row, Seq((put(row, (j,), at(X, k)), If(k < 38, write))))
    stays(func([X, Y], [Y], loop(i, 10, loop(j, 4, inside))))


def test_partial_sums_of_any_length_stay_in_registers() -> None:
    A, B = te.placeholder((64, 1000), name="A"), te.placeholder((4, 1000), name="B")
    k = te.reduce_axis((0, 1000), name="k")
    C = te.compute((64, 4), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    kernel = akg.build(te.create_schedule(C.op), [A, B, C], target="cpu")
    assert "masked" not in kernel.llvm
