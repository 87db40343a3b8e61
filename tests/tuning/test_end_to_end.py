"""From a declaration to a tuned schedule and back, with real builds, times and value checks."""

import os
import subprocess
import sys
import textwrap
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import akg_py as akg
from akg_py import library, ops, pipeline, te
from akg_py.errors import DatabaseError, SpaceError
from akg_py.tuning import Database, UntunedWarning, look_up
from akg_py.tuning.executor import WorkerPool
from akg_py.tuning.measure import make_job, measure, verify


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(2) as p:
        yield p


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    return tmp_path_factory.mktemp("tuning") / "t.jsonl"


@pytest.mark.parametrize(
    "text",
    [
        "matmul:m=96,n=80,k=48",
        "matmul:m=33,n=17,k=50,dtype=float32",
        "batch_matmul:b=3,m=32,n=48,k=16",
        "softmax:shape=20x50",
        "layer_norm:shape=12x70,dtype=float32",
        "gelu:shape=30x100",
        "add:shape=7x33",
    ],
)
def test_tune_then_tuned(text, pool, database):
    record = akg.tune(text, "ascend910b3", trials=10, database=database, executor=pool)
    assert record.verified.startswith("full") and record.trials["completed"] >= 1
    assert record.simulated_us <= record.baseline["simulated_us"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule = akg.tuned(text, "ascend910b3", database=database)
    kernel = pipeline.build(schedule, _args(schedule, text), target="ascend910b3")
    assert kernel.time().microseconds == pytest.approx(record.simulated_us, rel=1e-4)


def _args(schedule, text):
    workload = ops.Workload.parse(text)
    names = [t.name for t in workload.inputs]
    return [*(schedule.tensor(n) for n in names), *schedule.outputs]


def test_names_of_the_user_do_not_matter(pool, database):
    akg.tune("matmul:m=64,n=64,k=64", "ascend910b3", trials=4, database=database, executor=pool)
    left, right = (
        te.placeholder((64, 64), "float16", name="left"),
        te.placeholder((64, 64), "float16", name="right"),
    )
    product = ops.matmul(left, right, name="product")
    answer = look_up(product, "ascend910b3", database=database)
    assert answer.step == "exact" and answer.record is not None
    kernel = pipeline.build(answer.schedule, [left, right, product], target="ascend910b3")
    a = np.arange(64 * 64).reshape(64, 64).astype(np.float16) % 5 - 2
    assert np.array_equal(kernel(a, a), te.evaluate(product, [a, a]))


def test_without_a_record_the_default_is_given_and_said(database, pool):
    akg.tune("matmul:m=64,n=64,k=64", "ascend910b3", trials=4, database=database, executor=pool)
    with pytest.warns(UntunedWarning, match="no record of matmul:m=64,n=64,k=63.*it has matmul"):
        schedule = akg.tuned("matmul:m=64,n=64,k=63", "ascend910b3", database=database)
    assert str(schedule) == str(library.task("matmul:m=64,n=64,k=63", "ascend910b3").apply())
    with pytest.warns(UntunedWarning, match="tuned for ascend910b3"):
        akg.tuned("matmul:m=64,n=64,k=64", "cpu", database=database)
    with pytest.raises(DatabaseError, match="no such database"):
        akg.tuned("matmul:m=64,n=64,k=64", database="none.jsonl")


TUNABLE = [o.name for o in ops.operators() if "ascend" in library.families_of(o.name)]


@pytest.mark.parametrize("op", [name for name in TUNABLE if not name.startswith("test_")])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_defaults_build_and_are_right(op, dtype):
    shape = "m=40,n=50,k=30" if "matmul" in op else "shape=24x200"
    text = f"{op}:{'b=2,' if op == 'batch_matmul' else ''}{shape},dtype={dtype}"
    task = library.task(text, "ascend910b3")
    job = make_job(task, task.default)
    assert measure(job)["seconds"] > 0
    assert verify(job)["wrong"] == ""


@pytest.mark.parametrize("text", ["matmul:m=1024,n=1024,k=64", "batch_matmul:b=40,m=96,n=128,k=72"])
def test_large_values_are_sampled(text):
    task = library.task(text, "ascend910b3")
    result = verify(make_job(task, task.default))
    assert result["how"].startswith("sampled, 4 parts of") and result["wrong"] == ""


def test_wrong_values_are_seen(monkeypatch):
    task = library.task("add:shape=8x8", "ascend910b3")
    broken = {**make_job(task, task.default)}
    real = pipeline.build

    def build(*args, **kwargs):
        kernel = real(*args, **kwargs)

        class Off:
            schedule = kernel.schedule

            def __call__(self, *inputs):
                out = kernel(*inputs)
                out[3, 4] += 1
                return out

        return Off()

    monkeypatch.setattr(pipeline, "build", build)
    assert "1 of 64 elements of output 0 differ, first at [3, 4]" in verify(broken)["wrong"]


def test_a_stale_record_is_simulated_again(pool, tmp_path):
    path = tmp_path / "t.jsonl"
    record = akg.tune("add:shape=16x64", trials=4, database=None, executor=pool)
    costs = {**record.costs, "simulated_us": 0.1}
    Database(path).append(replace(record, device="old", costs=costs))
    answer = look_up("add:shape=16x64", database=path)
    assert answer.step == "exact" and "simulated again" in answer.note
    assert answer.time_us == pytest.approx(record.simulated_us, rel=1e-4)


OWN = """
from akg_py import library, ops, te, tune

@ops.register("own_scaled_add", [ops.shape(), ops.number("alpha", 2.0), ops.dtype()])
def scaled_add(shape, alpha, dtype):
    X, Y = te.placeholder(shape, dtype, name="X"), te.placeholder(shape, dtype, name="Y")
    return [X, Y], [te.compute(shape, lambda *i: X(*i) + Y(*i) * alpha, name="Z")]

@library.register_schedule("own_scaled_add", "ascend", space='''
[knobs.tile_rows]
values = [1, 2, 4, 8]
upto = "rows"
''')
def schedule(s, config):
    out = s.outputs[0]
    cache = s.cache_write(out, "UB")
    outer, _ = s[out].split(out.op.axis[0], factor=config.tile_rows)
    s[out].bind(outer, te.thread_axis("blockIdx.x"))
    s[cache].compute_at(s[out], outer)
    for t in s[cache].op.input_tensors:
        s[s.cache_read(t, "UB", [cache])].compute_at(s[out], outer)

if __name__ == "__main__":
    record = tune("own_scaled_add:shape=16x64,dtype=float32", database="own.jsonl", workers=1)
    print(record.trials, record.verified)
"""


def test_an_operator_of_ones_own(tmp_path):
    (tmp_path / "own.py").write_text(textwrap.dedent(OWN))
    env = {**os.environ, "PYTHONPATH": str(Path(akg.__file__).parent.parent)}
    run = subprocess.run(
        [sys.executable, "own.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "'completed': 4, 'failed': 0" in run.stdout and "full" in run.stdout


@pytest.mark.parametrize(
    "text",
    [
        "matmul:m=32,n=32,k=32,dtype=float32",
        "conv2d:c=5,h=8,w=8,oc=20,kh=3,kw=3,padding=1,dtype=float32",
    ],
)
def test_cpu_target(text):
    """Configs are compiled by all workers, then measured one at a time."""
    jobs = []
    most = {"prepare": 0, "measure": 0, "verify": 0}

    class Watched(WorkerPool):
        def submit(self, fn, /, *args, **kwargs):
            running = [name for name, future in jobs if not future.done()]
            assert "measure" not in running
            future = super().submit(fn, *args, **kwargs)
            jobs.append((fn.__name__, future))
            most[fn.__name__] = max(most[fn.__name__], running.count(fn.__name__) + 1)
            return future

    with Watched(2) as pool:
        record = akg.tune(text, "cpu", trials=4, database=None, executor=pool)
    assert record.verified.startswith("full") and record.device == ""
    assert most["measure"] == 1 and most["prepare"] > 1


def test_a_space_without_a_feasible_config_says_why(pool):
    @ops.register("test_tight", [ops.shape(), ops.dtype()])
    def declare(shape, dtype):
        X = te.placeholder(shape, dtype, name="X")
        return [X], [te.compute(shape, lambda *i: X(*i) * 2, name="Y")]

    space = """
    knobs.tile_rows = [1, 2]
    constraints = [{require = "tile_rows * cols * 4 <= ub_bytes", reason = "rows don't fit UB"}]
    """
    library.register_schedule("test_tight", "ascend", space=space)(lambda s, config: None)
    with pytest.raises(SpaceError) as info:
        akg.tune("test_tight:shape=4x200000", trials=4, database=None, executor=pool)
    assert "dropped 2: rows don't fit UB" in info.value.message


@pytest.mark.parametrize(
    "text",
    ["softmax:shape=3x70000", "layer_norm:shape=2x60000,dtype=float32", "add:shape=1x300000"],
)
def test_rows_longer_than_the_memory(text, pool):
    record = akg.tune(text, trials=4, database=None, executor=pool)
    assert record.trials["failed"] == 0 and record.verified.startswith("full")
