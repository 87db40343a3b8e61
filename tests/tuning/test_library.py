"""Finding schedules and spaces; applying configs; every shipped space has a feasible default."""

import pytest

from akg_py import library, ops, te
from akg_py.errors import SpaceError, UnsupportedError

SHAPES = [
    "matmul:m=1024,n=2048,k=512",
    "matmul:m=1,n=1,k=1",
    "matmul:m=1000,n=3000,k=520,dtype=float32",
    "matmul:m=7,n=3,k=0",
    "batch_matmul:b=96,m=128,n=128,k=64",
    "batch_matmul:b=1,m=1,n=1,k=17",
    "softmax:shape=4096x1024",
    "softmax:shape=1x1",
    "layer_norm:shape=1024x768,dtype=float32",
    "layer_norm_gelu:shape=33x65",
    "rms_norm:shape=32x4096",
    "gelu:shape=1024x3072",
    "add:shape=7x33",
    "add:shape=0x5",
    "bias_add:shape=1024x768",
    "swiglu:shape=32x11008",
    "relu:shape=131x127,dtype=float32",
]
CONVS = [
    "conv2d:c=64,h=56,w=56,oc=64,kh=3,kw=3,padding=1,dtype=float32",
    "conv2d:n=2,c=3,h=23,w=31,oc=50,kh=7,kw=7,stride=2,padding=3",
    "conv2d:c=12,h=9,w=9,oc=30,kh=1,kw=1,dtype=float32",
    "conv2d:c=6,h=4,w=4,oc=6,kh=3,kw=3,groups=6,layout=NHWC",
    "conv2d:c=0,h=4,w=4,oc=4,kh=3,kw=3",
]
UNTUNED = {"depthwise_conv2d", "max_pool2d", "avg_pool2d"}


@pytest.mark.parametrize(
    ("text", "target"),
    [(text, target) for text in SHAPES for target in ("ascend910b3", "cpu")]
    + [(text, "cpu") for text in CONVS],
)
def test_defaults_apply_and_replay(text, target):
    task = library.task(text, target)
    assert len(task.space) >= 1
    schedule = task.apply()
    again = te.create_schedule([t.op for t in ops.Workload.parse(text).outputs])
    te.Trace.from_json(schedule.trace.to_json()).replay(again)
    assert str(again) == str(schedule)


@pytest.mark.parametrize("text", SHAPES + CONVS)
def test_every_kind_of_config_applies(text):
    task = library.task(text, "cpu" if text in CONVS else "ascend910b3")
    for row in range(0, len(task.space), max(1, len(task.space) // 40)):
        task.apply(task.space.config_at(row))


def test_operators_have_schedules():
    for op in ops.operators():
        if not op.name.startswith("test_"):
            known = ["cpu"] if op.name == "conv2d" else ["ascend", "cpu"]
            known = [] if op.name in UNTUNED else known
            assert library.families_of(op.name) == known, op.name


def test_user_mistakes():
    with pytest.raises(UnsupportedError, match="unknown target"):
        library.task("add:shape=4x4", "ascend910b9")
    task = library.task("matmul:m=64,n=64,k=64", "ascend910b3")
    with pytest.raises(SpaceError, match="unknown knob tile_x"):
        task.apply({**task.default, "tile_x": 1})
    with pytest.raises(SpaceError, match="can't be 256 here"):
        task.apply({**task.default, "tile_m": 256})
    big = library.task("matmul:m=1024,n=1024,k=1024", "ascend910b3")
    with pytest.raises(SpaceError, match=r"accumulators don't fit L0C.*tile_m = 256") as info:
        big.apply({**big.default, "tile_m": 256, "tile_n": 512})
    assert info.value.hint
    X = te.placeholder((4, 4), "float32", name="X")
    with pytest.raises(UnsupportedError, match="no schedule of this graph"):
        library.task(te.compute((4, 4), lambda i, j: X[j, i], name="T"), "ascend910b3")


def test_hand_written_graphs_find_their_schedule():
    A, B = (
        te.placeholder((64, 32), "float16", name="left"),
        te.placeholder((32, 48), "float16", name="right"),
    )
    task = library.task(ops.matmul(A, B, name="product"), "ascend910b3")
    assert task.workload.text == "matmul:m=64,n=48,k=32,dtype=float16"
    assert "product" in str(task.apply())


def test_register_a_schedule(tmp_path):
    @ops.register("test_twice", [ops.shape(), ops.dtype()])
    def declare(shape, dtype):
        X = te.placeholder(shape, dtype, name="X")
        return [X], [te.compute(shape, lambda *i: X(*i) * 2, name="Y")]

    @library.register_schedule("test_twice", "cpu", space="[knobs]\nlanes = [4, 8]\n")
    def schedule(s, config):
        _, inner = s[s.outputs[0]].split(s.outputs[0].op.axis[-1], factor=config.lanes)
        s[s.outputs[0]].vectorize(inner)

    task = library.task("test_twice:shape=4x16", "cpu")
    assert len(task.space) == 2 and "factor=8" in str(task.apply({"lanes": 8}))
    assert library.families_of("test_twice") == ["cpu"]
    with pytest.raises(SpaceError, match="no such search space"):
        library.register_schedule("test_twice", "cpu", space=tmp_path / "none.toml")


def test_device_sizes_and_peaks():
    sizes = library.device_sizes("ascend910b3")
    assert sizes["l0c_bytes"] == 131072 and sizes["cores_aic"] == 20
    assert library.peak_rates("ascend910b3")["flops_f16"] == pytest.approx(294.9e12, rel=1e-3)
    assert library.peak_rates("cpu") == {}
