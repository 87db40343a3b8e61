"""What errors look like: golden text of the messages that users meet most."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from akg_py import te
from akg_py.errors import AkgError
from akg_py.lowering import lower_schedule
from tests.te.test_mistakes import DECLARE, LOWER, SCHEDULE, Case

SHOWN = (
    "too few lambda arguments",
    "index out of range",
    "python if",
    "exp of integers",
    "sum over a number",
    "reduction in an expression",
    "reduce axis outside of its reduction",
    "combiner that does not commute",
)
SHOWN_SCHEDULE = (
    "split by zero",
    "split an axis again",
    "fuse loops apart",
    "parallel on a reduce axis",
    "compute an output at",
    "compute at a stage that doesn't use it",
    "inline a reduction",
    "cache_read for a stage that doesn't read it",
    "rfactor a data axis",
)


def message(mistake: Callable[[], object]) -> str:
    try:
        mistake()
    except AkgError as e:
        place = str(e.where)
        return f"{type(e).__name__}: {str(e).replace(place, 'user.py')}"
    raise AssertionError("no error")


def test_messages(golden: Callable[[str, str], None]) -> None:
    parts = [(name, message(DECLARE[name])) for name in SHOWN]
    for table, names in ((SCHEDULE, SHOWN_SCHEDULE), (LOWER, tuple(LOWER))):
        parts += [(name, message(partial(table[name], Case()))) for name in names]
    golden("messages.txt", "\n\n".join(f"# {name}\n{text}" for name, text in parts))


def test_tensorize_message(golden: Callable[[str, str], None]) -> None:
    x, y = te.placeholder((8,), name="x"), te.placeholder((8,), name="y")
    z = te.compute((8,), lambda i: x[i] * y[i])
    te.decl_tensor_intrin(z.op, name="mul8")
    A, B = te.placeholder((32,), name="A"), te.placeholder((32,), name="B")
    C = te.compute((32,), lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    _, inner = s[C].split("i", 8)
    s[C].tensorize(inner, "mul8")
    golden("tensorize.txt", message(lambda: lower_schedule(s, [A, B, C])))
