"""Every vector instruction against numpy: values, special cases, masks, strides, scalar code."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from akg_py import build, te
from akg_py.ascend import instructions as ins
from akg_py.ascend import isa, values
from akg_py.ascend.device import load_device
from akg_py.ascend.program import GlobalTensor, Phase, Program, SetFlag, WaitFlag, address
from akg_py.ir.expr import Var, const

LONG = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i32": "int32",
    "i8": "int8",
    "u8": "uint8",
}
NUMPY = {
    **{k: np.dtype(v) for k, v in LONG.items() if k != "bf16"},
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
AREA = 16384  # bytes of UB per operand


def run_one(make, arrays, result):
    """Area 0 of UB, `result` at first, after make(dst, src0, src1) with arrays in areas 1, 2."""
    out = result.copy()
    every = [*arrays, out]
    tensors = tuple(
        GlobalTensor(f"t{k}", str(a.dtype), a.shape, "output" if a is out else "input", k)
        for k, a in enumerate(every)
    )
    at = [*[address("UB", AREA * k) for k in (1, 2)][: len(arrays)], address("UB", 0)]
    body = [
        ins.copy(at[k], address(t), 1, t.size_bytes, 0, 0, "MTE2") for k, t in enumerate(tensors)
    ]
    zero = const(0)
    body += [SetFlag("MTE2", "V", 0, zero), WaitFlag("MTE2", "V", 0, zero)]
    body.append(make(at[-1], address("UB", AREA), address("UB", 2 * AREA)))
    body += [SetFlag("V", "MTE3", 1, zero), WaitFlag("V", "MTE3", 1, zero)]
    body.append(ins.copy(address(tensors[-1]), at[-1], 1, tensors[-1].size_bytes, 0, 0, "MTE3"))
    from akg_py.ascend.program import Flag

    phase = Phase(
        "one",
        "aiv",
        Var("core", lo=0, hi=0),
        1,
        tuple(body),
        (Flag("MTE2", "V", 0, 1), Flag("V", "MTE3", 1, 1)),
    )
    values.execute(Program("one", load_device("ascend910b3"), tensors, (phase,)), every, threads=1)
    return out


def sample(dtype, n, seed=0):
    rng = np.random.default_rng(seed)
    if dtype == "i32":
        data = rng.integers(-(2**31), 2**31, n, dtype=np.int64).astype(np.int32)
        data[:4] = [0, -(2**31), 2**31 - 1, -1]
        return data
    if dtype in ("i8", "u8"):
        info = np.iinfo(NUMPY[dtype])
        return rng.integers(info.min, info.max + 1, n).astype(NUMPY[dtype])
    data = (rng.standard_normal(n) * 10).astype(np.float32)
    data[:12] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, -1e-40, 65504, 0.5, -2.5]
    with np.errstate(over="ignore"):
        return data.astype(NUMPY[dtype])


def wide(x):
    return x if x.dtype.kind in "iu" else x.astype(np.float32)


def reference(name, x, y, dtype):
    """The numpy value of an op on arrays of its dtype, computed in float32 and rounded."""
    out = NUMPY[dtype]
    a, b = wide(x), wide(y)
    table = {
        "VADD": lambda: a + b,
        "VADDS": lambda: a + b,
        "VSUB": lambda: a - b,
        "VRSUBS": lambda: b - a,
        "VMUL": lambda: a * b,
        "VMULS": lambda: a * b,
        "VDIV": lambda: a / b,
        "VDIVS": lambda: a / b,
        "VRDIVS": lambda: b / a,
        "VMAX": lambda: np.maximum(a, b),
        "VMAXS": lambda: np.maximum(a, b),
        "VMIN": lambda: np.minimum(a, b),
        "VMINS": lambda: np.minimum(a, b),
        "VEXP": lambda: np.exp(a.astype(np.float64)),
        "VLN": lambda: np.log(a.astype(np.float64)),
        "VSQRT": lambda: np.sqrt(a),
        "VRSQRT": lambda: np.float32(1) / np.sqrt(a),
        "VREC": lambda: np.float32(1) / a,
        "VFLOOR": lambda: np.floor(a),
        "VCEIL": lambda: np.ceil(a),
        "VROUND": lambda: np.rint(a),
        "VTRUNC": lambda: np.trunc(a),
        "VABS": lambda: np.abs(a),
        "VNEG": lambda: -a,
        "VRELU": lambda: np.maximum(a, 0),
        "VCOPY": lambda: a,
        "VDUP": lambda: b + 0 * np.zeros_like(b),
        "VCMPLT": lambda: a < b,
        "VCMPLE": lambda: a <= b,
        "VCMPGT": lambda: a > b,
        "VCMPGE": lambda: a >= b,
        "VCMPEQ": lambda: a == b,
        "VCMPNE": lambda: a != b,
    }
    with np.errstate(all="ignore"):
        return table[name]().astype(out)


def close(name, got, want):
    if name in ("VEXP", "VLN"):
        finite = np.isfinite(want.astype(np.float32))
        np.testing.assert_array_equal(got[~finite], want[~finite])
        step = np.spacing(np.abs(want[finite]).astype(want.dtype))
        error = np.abs(
            got[finite].astype(np.float64) - want[finite].astype(np.float64)
        ) / step.astype(np.float64)
        assert error.max() <= 2.0, error.max()
    else:
        np.testing.assert_array_equal(got, want)


LANE_OPS = [
    (name, dtype)
    for group in (isa.BINARY, isa.SCALAR, isa.UNARY, isa.COMPARE, {"VDUP": ""})
    for name in group
    for dtype in isa.VECTOR_DTYPES
    if f"{name}_{dtype}" in isa.INSTRUCTIONS
]


@pytest.mark.parametrize(("name", "dtype"), LANE_OPS)
def test_lane_op(name, dtype):
    lanes = 256 // isa.DTYPE_BYTES[dtype]
    repeats, active = 7, lanes - 3
    x, y = sample(dtype, lanes * repeats), np.roll(sample(dtype, lanes * repeats, 1), 5)
    before = sample(dtype, lanes * repeats, 2)
    if name in isa.SCALAR or name == "VDUP":
        scalar = NUMPY[dtype].type(3)
        second, y = ins.immediate(scalar, dtype), np.full_like(x, scalar)
    else:
        second = None

    def make(active):
        return lambda d, a, b: ins.vector(
            name, LONG[dtype], d, a, b if second is None else second, lanes=active, repeats=repeats
        )

    want = reference(name, x, y, dtype)
    close(name, run_one(make(lanes), [x, y], before), want)  # dense
    got = run_one(make(active), [x, y], before).reshape(repeats, lanes)
    close(name, got[:, :active].reshape(-1), want.reshape(repeats, lanes)[:, :active].reshape(-1))
    np.testing.assert_array_equal(
        got[:, active:], before.reshape(repeats, lanes)[:, active:]
    )  # masked lanes stay


@pytest.mark.parametrize("dtype", isa.VECTOR_DTYPES)
def test_strides(dtype):
    """Repeat stride 0 and block stride 0 broadcast; a block stride of 64 leaves gaps."""
    es = isa.DTYPE_BYTES[dtype]
    lanes, c0 = 256 // es, 32 // es
    x, y = sample(dtype, lanes * 3), sample(dtype, lanes * 3, 1)
    before = np.zeros(6 * lanes, NUMPY[dtype])
    got = run_one(
        lambda d, a, b: ins.vector(
            "VADD",
            LONG[dtype],
            d,
            a,
            b,
            lanes=lanes,
            repeats=3,
            rep=(512, 256, 32),
            blk=(64, 32, 0),
        ),
        [x, y],
        before,
    ).reshape(3, 16, c0)
    blocks = np.repeat(y.reshape(-1, c0)[:3, None], 8, axis=1)
    want = reference("VADD", x.reshape(3, 8, c0), blocks, dtype)
    np.testing.assert_array_equal(got[:, ::2], want)
    assert not got[:, 1::2].any()
    got = run_one(
        lambda d, a, b: ins.vector(
            "VMUL", LONG[dtype], d, a, b, lanes=lanes - 1, repeats=3, rep=(256, 0, 256)
        ),
        [x, y],
        before,
    )[: 3 * lanes].reshape(3, lanes)
    want = reference("VMUL", np.tile(x[:lanes], 3), y, dtype).reshape(3, lanes)
    np.testing.assert_array_equal(got[:, :-1], want[:, :-1])


@pytest.mark.parametrize("dtype", isa.VECTOR_DTYPES)
def test_select(dtype):
    x, y, before = sample(dtype, 300), sample(dtype, 300, 1), sample(dtype, 300, 2)
    x[::3] = 0
    got = run_one(
        lambda d, a, b: ins.vector(
            "VSEL", LONG[dtype], d, a, b, lanes=30, repeats=10, rep=(120,) * 3
        ),
        [x, y],
        before,
    )
    if isa.DTYPE_BYTES[dtype] == 4:
        np.testing.assert_array_equal(got, np.where(x != 0, y, before))


CONVERSIONS = [(a, b) for a in isa.CONVERTIBLE for b in isa.CONVERTIBLE if a != b]


@pytest.mark.parametrize(("source", "result"), CONVERSIONS)
def test_conversion(source, result):
    es_a, es_b = isa.DTYPE_BYTES[source], isa.DTYPE_BYTES[result]
    lanes = 256 // max(es_a, es_b)
    x = sample(source, lanes * 5)
    floats = ("f32", "f16", "bf16")
    if source in floats and result not in floats:
        x = (np.random.default_rng(3).standard_normal(len(x)) * 30).astype(NUMPY[source])
        if result == "u8":
            x = np.abs(x)
    got = run_one(
        lambda d, a, b: ins.vector(
            "VCONV",
            f"{LONG[source]}_{LONG[result]}",
            d,
            a,
            0,
            lanes=lanes,
            repeats=5,
            rep=(lanes * es_b, lanes * es_a, 0),
        ),
        [x],
        np.zeros(len(x), NUMPY[result]),
    )
    with np.errstate(all="ignore"):
        want = (
            wide(x).astype(np.int32).astype(NUMPY[result])
            if source in floats and result not in floats
            else wide(x).astype(NUMPY[result])
        )
    np.testing.assert_array_equal(
        wide(got), wide(want)
    )  # NaN of bfloat16 compares unequal in numpy


@pytest.mark.parametrize("dtype", isa.VECTOR_DTYPES)
@pytest.mark.parametrize("name", list(isa.CROSS))
def test_cross_lane(name, dtype):
    es = isa.DTYPE_BYTES[dtype]
    lanes, repeats = 256 // es, 6
    x = np.random.default_rng(0).integers(-50, 50, lanes * repeats).astype(NUMPY[dtype])
    for active in (lanes, lanes - 5, 3):
        got = run_one(
            lambda d, a, b, active=active: ins.vector(
                name, LONG[dtype], d, a, lanes=active, repeats=repeats, rep=(es, 256, 0)
            ),
            [x],
            np.zeros(repeats, NUMPY[dtype]),
        )
        part = x.reshape(repeats, lanes)[:, :active].astype(np.float64)
        want = {"VCADD": part.sum(1), "VCMAX": part.max(1), "VCMIN": part.min(1)}[name].astype(
            NUMPY[dtype]
        )
        np.testing.assert_array_equal(got, want)


def test_cross_lane_nan():
    x = np.ones(64, np.float32)
    x[37] = np.nan
    for name in isa.CROSS:
        got = run_one(
            lambda d, a, b, name=name: ins.vector(name, "float32", d, a, lanes=64),
            [x],
            np.zeros(1, np.float32),
        )
        assert np.isnan(got[0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
def test_broadcast(dtype):
    x = np.arange(40).astype(dtype)
    c0 = 32 // x.itemsize
    got = run_one(lambda d, a, b: ins.brcb(d, a, 40, dtype), [x], np.zeros(40 * c0, dtype))
    np.testing.assert_array_equal(got, np.repeat(x, c0))


def test_scalar_fallback_at_odd_addresses():
    x = np.arange(16, dtype=np.float32)
    got = run_one(
        lambda d, a, b: ins.vector(
            "VADDS", "float32", d + 12, a + 20, ins.immediate(1.5, "f32"), lanes=1, pipe="S"
        ),
        [x],
        np.zeros(16, np.float32),
    )
    want = np.zeros(16, np.float32)
    want[3] = 6.5
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["VEXP", "VLN"])
def test_all_exponents(name):
    """exp and ln over the whole float32 range, within 2 ulp of the float64 value."""
    bits = np.linspace(0, 0x7F800000, 16384 // 4).astype(np.uint32)
    x = bits.view(np.float32)
    if name == "VEXP":
        x = np.linspace(-105, 90, 4096).astype(np.float32)
    got = run_one(
        lambda d, a, b: ins.vector(name, "float32", d, a, lanes=64, repeats=64),
        [x],
        np.zeros_like(x),
    )
    close(name, got, reference(name, x, x, "f32"))


@pytest.mark.parametrize(
    ("name", "function"), [("VEXP", "exp"), ("VLN", "log"), ("VRSQRT", "rsqrt")]
)
def test_functions_are_those_of_the_cpu(name, function):
    """The simulated vector unit and the cpu target share one emitter: equal bits."""
    x = te.placeholder((4096,), "float32", name="X")
    y = te.compute((4096,), lambda i: getattr(te, function)(x[i]), name="Y")
    data = sample("f32", 4096)
    got = run_one(
        lambda d, a, b: ins.vector(name, "float32", d, a, lanes=64, repeats=64),
        [data],
        np.zeros_like(data),
    )
    kernel = build(te.create_schedule(y.op), [x, y], target="cpu")
    np.testing.assert_array_equal(got, kernel(data))
