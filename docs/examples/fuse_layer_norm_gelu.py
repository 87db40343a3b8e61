"""layer_norm and gelu as two kernels and as one: bytes through GM, and time."""

import numpy as np

import akg_py as akg
from akg_py import ops, te

SHAPE = (4096, 1024)
TARGET = "ascend910b3"


def build(args):
    """A kernel of the default schedule: rows dealt to the vector cores, intermediates in UB."""
    return akg.build(te.create_schedule(args[-1].op), args, target=TARGET)


def traffic(cost):
    """Bytes that a kernel reads from GM and writes to it."""
    return sum(cost.bytes_read.values()) + sum(cost.bytes_written.values())


def main():
    X = te.placeholder(SHAPE, "float16", name="X")
    gamma, beta = (te.placeholder(SHAPE[1:], "float16", name=name) for name in ("gamma", "beta"))
    Y = te.placeholder(SHAPE, "float16", name="Y")
    norm = build([X, gamma, beta, ops.layer_norm(X, gamma, beta)])
    gelu = build([Y, ops.gelu(Y)])
    both = build([X, gamma, beta, ops.layer_norm(X, gamma, beta, activation="gelu")])

    costs = {"layer_norm": norm.time(), "gelu": gelu.time(), "one kernel": both.time()}
    for name, cost in costs.items():
        us = cost.microseconds
        print(f"{name:12} {traffic(cost) / 1e6:6.1f} MB  {us:6.1f} us, bound by {cost.bound}")
    *two, one = costs.values()
    bytes_ratio = traffic(one) / sum(traffic(cost) for cost in two)
    time_ratio = one.seconds / sum(cost.seconds for cost in two)
    print(f"one kernel: {bytes_ratio:.0%} of the bytes of two, {time_ratio:.0%} of their time")

    rng = np.random.default_rng(0)
    x = rng.standard_normal(SHAPE).astype("float16")
    g, b = (rng.standard_normal(SHAPE[1]).astype("float16") for _ in range(2))
    difference = abs(both(x, g, b).astype("float32") - gelu(norm(x, g, b)).astype("float32")).max()
    print(f"largest difference: {difference:.1e} (two kernels round to float16 in between)")


if __name__ == "__main__":
    main()
