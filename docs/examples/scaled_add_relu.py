"""A new operator, relu(x + alpha * y), with schedule and search space: declared, tuned, checked."""

from pathlib import Path

import numpy as np

import akg_py as akg
from akg_py import library, ops, te


@ops.register("scaled_add_relu", [ops.shape(), ops.number("alpha", 2.0), ops.dtype()])
def scaled_add_relu(shape, alpha, dtype):
    X, Y = (te.placeholder(shape, dtype, name=name) for name in "XY")
    return [X, Y], [te.compute(shape, lambda *i: te.maximum(X(*i) + Y(*i) * alpha, 0), name="Z")]


@library.register_schedule("scaled_add_relu", "ascend", space=Path(__file__).with_suffix(".toml"))
def schedule(s, config):
    out = s.outputs[0]
    tile, _ = s[out].split(out.op.axis[0], factor=config.tile_rows)
    s[out].bind(tile, te.thread_axis("blockIdx.x"))
    result = s.cache_write(out, "UB")
    for stage in (result, *(s.cache_read(t, "UB", [result]) for t in s[result].op.input_tensors)):
        s[stage].compute_at(s[out], tile)
        if config.copies == 2:
            s[stage].double_buffer()


if __name__ == "__main__":  # worker processes load this file, too
    record = akg.tune("scaled_add_relu:shape=1000x512,dtype=float32", trials=16, database=None)
    print(record.baseline["simulated_us"], "us by default,", record.simulated_us, "us tuned")
    task = library.task(record.workload, record.target)
    kernel = akg.build(task.apply(record.config), task.workload.args, target=record.target)
    x, y = np.random.default_rng(0).standard_normal((2, 1000, 512)).astype("float32")
    print(record.config, "largest error:", abs(kernel(x, y) - np.maximum(x + 2 * y, 0)).max())
