"""What people get wrong, from the outside: each kind of bad input gives one clear error.

An error is an `AkgError` of the right kind, with a place in the user's code or data, a hint that
says what to do, and no text of our internals. Mistakes inside the language stand in
`te/test_mistakes.py`.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import akg_py as akg
from akg_py import library, ops, te
from akg_py.cli import main
from akg_py.cost.space import SearchSpace
from akg_py.tuning import Database, DatabaseWarning, Record, UntunedWarning

TARGET = "ascend910b3"
BOTH = ("cpu", TARGET)
INTERNAL = re.compile(
    r"Traceback|numba|llvm|site-packages|akg_py[/\\][\w/\\]+\.py:|object at 0x|<function|<class"
    r"|(?:Key|Value|Type|Index|Attribute|Assertion)Error|Binary\(|Const\(|Load\("
)


def matrix(*shape: int, dtype: str = "float32", name: str = "A") -> te.Tensor:
    return te.placeholder(shape, dtype, name=name)


def product(M: int = 64, N: int = 64, K: int = 64, dtype: str = "float16") -> list[te.Tensor]:
    """A, B and C = A @ B with float32 sums."""
    A, B = matrix(M, K, dtype=dtype), matrix(K, N, dtype=dtype, name="B")
    k = te.reduce_axis((0, K), name="k")

    def element(i, j):
        return te.sum(A[i, k].astype("float32") * B[k, j].astype("float32"), axis=k)

    return [A, B, te.compute((M, N), element, name="C")]


def plus_one(rows: int = 16, cols: int = 64, dtype: str = "float32") -> list[te.Tensor]:
    A = matrix(rows, cols, dtype=dtype)
    return [A, te.compute((rows, cols), lambda i, j: A[i, j] + 1, name="C")]


def scheduled() -> tuple[te.Schedule, te.Tensor]:
    C = product()[-1]
    return te.create_schedule(C.op), C


def built(args: list[te.Tensor], target: str = "cpu", **options: object) -> akg.build:
    return akg.build(te.create_schedule(args[-1].op), args, target=target, **options)


def zeros(*tensors: te.Tensor) -> list[np.ndarray]:
    return [np.zeros(t.shape, t.dtype) for t in tensors]


def mistake(call: Callable[[], object], kind: type[akg.AkgError], *parts: str) -> akg.AkgError:
    """The error of `call`, after the checks that all errors must pass."""
    with pytest.raises(akg.AkgError) as caught:
        call()
    error = caught.value
    text = str(error)
    assert type(error) is kind, text
    assert str(error.where or ""), f"no place: {text}"
    assert error.hint.strip(), f"no hint: {text}"
    assert not INTERNAL.search(text), text
    for part in parts:
        assert part in text, f"{part!r} is not in: {text}"
    return error


def at_this_file(error: akg.AkgError) -> bool:
    return str(error.where).startswith("test_bad_input.py:")


# ---------------------------------------------------------------- declarations

DECLARATIONS: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "unknown operator": (lambda: ops.declare("matmull", m=1, n=1, k=1), ("matmul",)),
    "unknown attribute": (lambda: ops.declare("matmul", m=1, n=1, kk=1), ("kk", "k")),
    "missing attribute": (lambda: ops.declare("matmul", m=1, n=1), ("without k",)),
    "negative attribute": (lambda: ops.declare("matmul", m=-1, n=1, k=1), ("m is -1",)),
    "attribute of another kind": (lambda: ops.declare("add", shape="4xfour"), ("shape",)),
    "choice that is none": (lambda: ops.declare("gelu", shape=(4, 4), form="fast"), ("tanh, erf",)),
    "unknown dtype": (lambda: matrix(4, dtype="float17"), ("float17", "float16")),
    "dtype of an operator": (lambda: ops.declare("add", shape=(4,), dtype="flot16"), ("float16",)),
    "negative extent": (lambda: matrix(4, -1), ("negative extent -1",)),
    "float extent": (lambda: matrix(4.0), ("4.0",)),  # type: ignore[arg-type]
    "float index": (
        lambda: te.compute((4,), lambda i: matrix(4)[i.astype("float32")]),
        ("float32", "int32"),
    ),
    "read out of range": (
        lambda: te.compute((4,), lambda i: matrix(4)[i + 1], name="C"),
        ("C: A[i + 1]", "index 4", "extent 4", "if_then_else"),
    ),
    "reduction in an expression": (
        lambda: te.compute((4,), lambda i: te.sum(matrix(4, 8)[i, K8], axis=K8) + 1.0),
        ("inside another expression",),
    ),
    "shapes of an operator": (
        lambda: ops.matmul(matrix(4, 8, name="X"), matrix(9, 4, name="Y")),
        ("8", "9"),
    ),
    "dtypes of an operator": (
        lambda: ops.add(matrix(4, 8, name="X"), matrix(4, 8, dtype="float16", name="Y")),
        ("float32", "float16"),
    ),
    "no function": (lambda: te.compute((4,), 5.0, name="C"), ("C: 5.0 is no function",)),
    "no workload": (lambda: akg.task(5, TARGET), ("5 is no workload",)),
    "tensors that don't broadcast": (lambda: matrix(4, 8) + matrix(3), ("broadcast",)),
    "python's if": (
        lambda: te.compute((4,), lambda i: 1.0 if matrix(4)[i] > 0 else 0.0),
        ("te.if_then_else",),
    ),
}
K8 = te.reduce_axis((0, 8), name="k")


@pytest.mark.parametrize("name", DECLARATIONS)
def test_declarations(name: str) -> None:
    call, parts = DECLARATIONS[name]
    assert at_this_file(mistake(call, akg.ExpressionError, *parts))


# ---------------------------------------------------------------- schedules


def compute_in_a_circle() -> None:
    A = matrix(4, 4)
    X = te.compute((4, 4), lambda i, j: A[i, j] + 1.0, name="X")
    Y = te.compute((4, 4), lambda i, j: X[i, j] + 1.0, name="Y")
    Z = te.compute((4, 4), lambda i, j: X[i, j] + Y[i, j], name="Z")
    s = te.create_schedule(Z.op)
    s[X].compute_at(s[Y], "i")
    s[Y].compute_at(s[X], "i")


def on_stage(call: Callable[[te.Stage], object]) -> Callable[[], object]:
    def run() -> object:
        s, C = scheduled()
        return call(s[C])

    return run


SCHEDULES: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "split by 0": (on_stage(lambda c: c.split("i", 0)), ("can't split i", "positive", "axes of C")),
    "split by a half": (on_stage(lambda c: c.split("i", 0.5)), ("positive integers, not 0.5",)),
    "unknown axis": (on_stage(lambda c: c.split("q", 2)), ("no axis of this stage",)),
    "axis of another tensor": (
        on_stage(lambda c: c.split(plus_one()[-1].op.axis[0], 2)),
        ("no axis of this stage",),
    ),
    "axis that was split": (
        on_stage(lambda c: (c.split("i", 4), c.split("i", 2))),
        ("has been split",),
    ),
    "parallel on a reduce axis": (
        on_stage(lambda c: c.parallel("k")),
        ("can't parallelize k", "reduce axis", "i, j"),
    ),
    "vectorize on a reduce axis": (on_stage(lambda c: c.vectorize("k")), ("reduce axis",)),
    "fuse loops apart": (on_stage(lambda c: c.fuse("i", "k")), ("neighbouring",)),
    "compute_at in a circle": (compute_in_a_circle, ("Y", "X")),
    "inline a reduction": (on_stage(lambda c: c.compute_inline()), ("reduction",)),
    "stage of an input": (lambda: scheduled()[0][matrix(4)], ("inputs have none",)),
    "scope of an output": (on_stage(lambda c: c.set_scope("UB")), ("cache_write",)),
    "unknown thread axis": (lambda: te.thread_axis("threadIdx.x"), ("blockIdx.x",)),
    "a tensor as a schedule": (lambda: akg.build(product()[-1], product()), ("create_schedule",)),
    "a tensor to lower": (lambda: akg.lower(product()[-1], product()), ("lower takes a schedule",)),
    "a tensor to complete": (lambda: akg.complete(product()[-1], TARGET), ("create_schedule",)),
    "argument left out": (lambda: built(product()[1:]), ("missing arguments: A",)),
    "argument of another graph": (
        lambda: built([matrix(3, name="Q"), *product()]),
        ("Q is neither an input",),
    ),
    "unknown way of completion": (lambda: built(product(), auto="all"), ("'complete'",)),
    "schedule of nothing": (lambda: te.create_schedule("C"), ("C.op",)),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    call, parts = SCHEDULES[name]
    assert at_this_file(mistake(call, akg.ScheduleError, *parts))


def test_a_trace_that_does_not_fit_names_the_step() -> None:
    s, C = scheduled()
    s[C].split("i", 4)
    other = te.create_schedule(te.compute((4,), lambda x: matrix(4)[x] + 1.0, name="C").op)
    error = mistake(lambda: s.trace.replay(other), akg.ScheduleError, "no axis of this stage")
    assert any('s["C"].split("i", factor=4)' in note for note in error.__notes__)
    mistake(lambda: te.Trace.parse("import os"), akg.ScheduleError, "not a call")
    mistake(lambda: te.Trace.from_json(5), akg.ScheduleError, "no trace")  # type: ignore[arg-type]
    for text in ('s["C"].split()', 's["C"].split("i", 1, 2, 3)', 's["C"].fuse("i", by=2)'):
        trace = te.Trace.parse(text)
        mistake(lambda t=trace: t.replay(scheduled()[0]), akg.ScheduleError, "these arguments")


# ---------------------------------------------------------------- targets


def test_unknown_target() -> None:
    for call in (
        lambda: built(product(), "ascend910b9"),
        lambda: akg.task("add:shape=4x4", "ascend910b9"),
        lambda: akg.tune("add:shape=4x4", "ascend910b9", database=None),
    ):
        assert at_this_file(mistake(call, akg.UnsupportedError, "did you mean ascend910b3"))


def test_what_the_part_lacks() -> None:
    A = matrix(16, 64)
    wave = te.compute((16, 64), lambda i, j: te.sin(A[i, j]), name="wave")
    index = matrix(16, dtype="int32", name="index")
    gather = te.compute((16, 64), lambda i, j: A[index[i], j], name="gather")
    for args, parts in (
        (plus_one(dtype="float64"), ("float64", "float32")),
        (plus_one(dtype="int64"), ("int64", "int32")),
        ([A, wave], ("wave", "sin")),
        ([A, index, gather], ("gather", "index")),
    ):
        error = mistake(lambda a=args: built(a, TARGET), akg.UnsupportedError, *parts)
        assert at_this_file(error)


def test_unknown_memory() -> None:
    args = plus_one()
    s = te.create_schedule(args[-1].op)
    s[s.cache_write(args[-1], "shared")].compute_at(s["C"], "i")
    error = mistake(lambda: akg.build(s, args, TARGET), akg.UnsupportedError, "'shared'", "L0C, UB")
    assert at_this_file(error)


def test_too_large_for_ub() -> None:
    args = plus_one(512, 4096)
    s = te.create_schedule(args[-1].op)
    outer, _ = s["C"].split("i", 64)
    cache = s.cache_write(args[-1], "UB")
    for stage in (s.cache_read(args[0], "UB", [cache]), cache):
        s[stage].compute_at(s["C"], outer)
    error = mistake(
        lambda: akg.build(s, args, TARGET), akg.CapacityError,
        "UB needs 2,097,152 bytes, ascend910b3 has 196,608", "1 copy of 64 x 4096 float32",
        "smaller tiles",
    )  # fmt: skip
    assert at_this_file(error)


def test_too_large_for_l0c() -> None:
    args = product(512, 512, 64)
    s = te.create_schedule(args[-1].op)
    _, outer, _, _ = s["C"].tile("i", "j", 256, 256)
    s[s.cache_write(args[-1], "L0C")].compute_at(s["C"], outer)
    error = mistake(
        lambda: akg.build(s, args, TARGET), akg.CapacityError,
        "L0C needs 262,144 bytes, ascend910b3 has 131,072", "256 x 256 float32",
    )  # fmt: skip
    assert at_this_file(error)


def test_empty_sum_in_l0c() -> None:
    args = product(64, 64, 0)
    s = te.create_schedule(args[-1].op)
    _, outer, _, _ = s["C"].tile("i", "j", 16, 16)
    acc = s.cache_write(args[-1], "L0C")
    s[acc].compute_at(s["C"], outer)
    for operand, memory in ((args[0], "L0A"), (args[1], "L0B")):
        l1 = s.cache_read(operand, "L1", [acc])
        s[l1].compute_at(s["C"], outer)
        s[s.cache_read(l1, memory, [acc])].compute_at(s["C"], outer)
    error = mistake(
        lambda: akg.build(s, args, TARGET), akg.UnsupportedError,
        "no product is written to", "in L0C", "empty axis",
    )  # fmt: skip
    assert at_this_file(error)


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize("target", BOTH)
def test_arguments_of_a_call(target: str) -> None:
    args = plus_one()
    kernel = built(args, target)
    a, c = zeros(*args)
    read_only = c.copy()
    read_only.flags.writeable = False
    E = akg.ExpressionError
    mistake(lambda: kernel(a[:5]), E, "A needs float32[16, 64], not float32[5, 64]")
    mistake(lambda: kernel(a.T), E, "not float32[64, 16]")
    mistake(lambda: kernel(a.astype("float16")), E, "not float16", "astype('float32')")
    mistake(lambda: kernel(), E, "A, C", "not 0")
    mistake(lambda: kernel(a, c, c), E, "not 3")
    mistake(lambda: kernel(a, read_only), E, "output C is read-only")
    mistake(lambda: kernel(a, a), E, "output C overlaps the argument A", "inplace")
    mistake(lambda: kernel([[1.0]]), E, "not list")
    mistake(lambda: kernel(a, [1.0]), E, "C needs an array")
    error = mistake(lambda: kernel(None), E, "not NoneType")
    assert at_this_file(error)


def test_what_a_time_depends_on() -> None:
    args = plus_one()
    kernel = built(args, TARGET)
    for call in (lambda: kernel.time("hot"), lambda: kernel.profile(zeros(*args)[0])):
        mistake(call, akg.ExpressionError, "warm", "cold")
    mistake(lambda: built(args).time(), akg.ExpressionError, "not 0")  # times there are measured


def test_wrong_aliases() -> None:
    args = plus_one()
    other, half = matrix(16, 64, name="other"), plus_one(8)
    E = akg.ExpressionError
    mistake(lambda: built(args, inplace={args[1]: other}), E, "other", "no argument")
    A, X = matrix(16, 64), matrix(8, 64, name="X")
    C = te.compute((16, 64), lambda i, j: A[i, j] + X[0, j], name="C")
    mistake(lambda: built(args, inplace=[args[1]]), E, "inplace={output: input}")
    mistake(lambda: built([A, X, C], inplace={C: X}), E, "can't take the place of X")
    assert built(half, inplace={half[1]: half[0]})


# ---------------------------------------------------------------- spaces and workloads


def test_configs() -> None:
    task = akg.task("matmul:m=256,n=512,k=256,dtype=float16", TARGET)
    S = akg.SpaceError
    good = dict(task.default)
    mistake(lambda: task.apply({**good, "tile_q": 3}), S, "unknown knob tile_q", "tile_")
    mistake(lambda: task.apply({**good, "tile_m": 17}), S, "tile_m", "17")
    infeasible = {**good, "tile_m": 256, "tile_n": 512}
    mistake(
        lambda: task.apply(infeasible), S, "don't fit L0C", "l0c_bytes = 131072", "tile_n = 512"
    )
    del good["tile_m"]
    mistake(lambda: task.apply(good), S, "tile_m")


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [
        ("", akg.SpaceError, "no operator"),
        ("matmul:m", akg.SpaceError, "can't read 'm'"),
        ("matmul:m=4,m=5,n=1,k=1", akg.SpaceError, "stands twice"),
        ("matmul:m=4,n=1,k=x", akg.ExpressionError, "attribute k is 'x'"),
        ("add:shape=4x", akg.ExpressionError, "shape"),
        ("adn:shape=4x4", akg.ExpressionError, "did you mean add"),
    ],
)
def test_workload_text(text: str, kind: type[akg.AkgError], part: str) -> None:
    mistake(lambda: akg.task(text, TARGET), kind, part)


def test_a_graph_that_nobody_schedules() -> None:
    A = matrix(4, 4)
    C = te.compute((4,), lambda i: A[i, 0] * A[i, 1] - A[i, 2] * 7.0, name="C")
    mistake(lambda: akg.tune(C, database=None), akg.UnsupportedError, "register_schedule")


SPACES = {
    "not TOML": ("[knobs", "TOML"),
    "unknown name in a formula": (
        '[knobs.t]\nvalues = [1]\n[[constraints]]\nrequire = "t < rowz"\nreason = "no"\n',
        "rowz",
    ),
    "knob without values": ("[knobs.t]\n", "t"),
    "unknown section": ("[knob.t]\nvalues = [1]\n", "knob"),
}


@pytest.mark.parametrize("name", SPACES)
def test_space_files(name: str, tmp_path: Path) -> None:
    text, part = SPACES[name]
    path = tmp_path / "space.toml"
    path.write_text(text)
    sizes = library.device_sizes(TARGET) | {"rows": 4}
    mistake(lambda: SearchSpace.load(text, str(path), sizes), akg.SpaceError, part, "space.toml")


def test_a_space_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(akg.SpaceError, match="no such search space"):
        library.register_schedule("scaled", "ascend", tmp_path / "none.toml")


def test_an_operator_twice() -> None:
    def declare(shape: object, dtype: object) -> None:
        raise NotImplementedError

    mistake(
        lambda: ops.register("matmul", [ops.shape(), ops.dtype()])(declare),
        akg.ExpressionError, "matmul exists already",
    )  # fmt: skip


# ---------------------------------------------------------------- databases


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Two records."""
    path = tmp_path / "tuning.jsonl"
    for size, us in ((8, 5.0), (16, 4.0)):
        workload = ops.Workload.parse(f"add:shape={size}x{size},dtype=float16")
        Database(path).append(
            Record(
                workload.text,
                workload.digest,
                TARGET,
                {"tile_rows": 1},
                [],
                {"simulated_us": us, "interval_us": [us, us]},
                {"simulated_us": 9.0},
                {"completed": 1},
            )
        )
    return path


def test_torn_line_is_named_and_the_others_stay(database: Path) -> None:
    text = database.read_text()
    database.write_text(text[:-40])
    with pytest.warns(DatabaseWarning, match=r"tuning\.jsonl.*line 3") as caught:
        kept = list(Database(database))
    assert [r.workload for r in kept] == ["add:shape=8x8,dtype=float16"]
    assert len(caught) == 1 and not INTERNAL.search(str(caught[0].message))


def test_database_of_a_newer_schema(database: Path) -> None:
    header, *rest = database.read_text().splitlines()
    newer = dict.fromkeys(json.loads(header), 99)
    database.write_text("\n".join([json.dumps(newer), *rest]) + "\n")
    for call in (
        lambda: list(Database(database)),
        lambda: akg.tuned("add:shape=8x8", database=database),
    ):
        mistake(call, akg.DatabaseError, "tuning.jsonl", "99")


def test_other_files_are_no_databases(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    for content in ("hello\n", "[1, 2]\n", "\x00\x01"):
        path.write_text(content)
        mistake(lambda: list(Database(path)), akg.DatabaseError, "notes.txt", "no tuning database")
        assert path.read_text() == content


def test_paths(tmp_path: Path) -> None:
    D = akg.DatabaseError
    mistake(lambda: akg.tuned("add:shape=8x8", database=tmp_path / "none.jsonl"), D, "none.jsonl")
    for path in (tmp_path / "no" / "t.jsonl", tmp_path):
        mistake(lambda p=path: akg.tune("add:shape=8x8", trials=1, database=p), D, str(path))


def test_no_record_is_said_and_gives_the_default(database: Path) -> None:
    with pytest.warns(UntunedWarning, match="no record of relu"):
        schedule = akg.tuned("relu:shape=8x8,dtype=float16", database=database)
    assert len(schedule.trace)


def test_tuning_options() -> None:
    mistake(
        lambda: akg.tune("add:shape=8x8", trials=0, database=None), akg.SpaceError, "trials is 0"
    )
    mistake(
        lambda: akg.tune("add:shape=8x8", sampler="best", database=None), akg.SpaceError, "ranked"
    )


# ---------------------------------------------------------------- command line


@pytest.mark.parametrize(
    ("args", "code", "parts"),
    [
        (["tnue"], 2, ["did you mean tune"]),
        (["tune"], 2, ["WHAT"]),
        (["tune", "add:shape=4x4", "--trails", "3"], 2, ["--trails"]),
        (["tune", "add:shape=4x4", "--trials", "many"], 2, ["many"]),
        (["tune", "add:shape=4x4", "--minutes", "0"], 2, ["--minutes"]),
        (["tune", "none.toml"], 1, ["none.toml: no such file"]),
        (["tune", "bert-bse"], 1, ["did you mean bert-base"]),
        (["tune", "add:shape=4x4", "--target", "ascend"], 1, ["unknown target", "ascend910b3"]),
        (["tune", "add:shape=4x4", "--database", "no/t.jsonl"], 1, ["no/t.jsonl"]),
        (["db", "best", "none.jsonl"], 1, ["none.jsonl: no such database"]),
        (["db", "shw"], 2, ["shw"]),
    ],
)
def test_commands(
    args: list[str], code: int, parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, args)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code == code, result.output
    for part in parts:
        assert part in result.output
    assert not INTERNAL.search(result.output) and ".py:" not in result.output
    around = ("Usage", "Try", " ", "tuning ")
    message = [x for x in result.output.splitlines() if x and not x.startswith(around)]
    assert len(message) == 1, result.output


def test_a_list_with_one_bad_line(tmp_path: Path) -> None:
    listing = tmp_path / "mine.txt"
    listing.write_text("relu:shape=4x64\nrelu:shape=4by64\nadd:shape=4x64\n")
    path = tmp_path / "t.jsonl"
    limits = ["--trials", "1", "--workers", "1", "--minutes", "10", "--timeout", "300"]
    arguments = ["tune", str(listing), *limits, "--database", str(path)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1, result.output
    assert "line 2" in result.output and "4by64" in result.output
    assert not INTERNAL.search(result.output)
    assert len(Database(path)) == 2
