"""A matrix product scheduled step by step: loop nest and time after each step, then a replay.

The algorithm stays what it is; each step changes how the 910B3 computes it.
"""

import json

import numpy as np

import akg_py as akg
from akg_py import te

M, N, K = 1024, 2048, 512


def product():
    """C[M, N] = A[M, K] @ B[K, N], float16 in and out, sums in float32."""
    A, B = te.placeholder((M, K), "float16", name="A"), te.placeholder((K, N), "float16", name="B")
    k = te.reduce_axis((0, K), name="k")
    element = lambda i, j: te.sum(A[i, k].astype("float32") * B[k, j].astype("float32"), axis=k)  # noqa: E731
    P = te.compute((M, N), element, name="P")
    return [A, B, te.compute((M, N), lambda i, j: P[i, j].astype("float16"), name="C")]


def report(title, s, args):
    kernel = akg.build(s, args, target="ascend910b3", auto=False)
    cost = kernel.time()
    print(f"{title}: {cost.microseconds:.1f} us, bound by {cost.bound}")
    return kernel


def main():
    args = A, B, C = product()
    s = te.create_schedule(C.op)
    P = s.stages[0]
    print("as declared:", akg.lower(s, args), sep="\n")

    # Blocks of C, dealt to the cube cores. The sum is formed in L0C; the copy out converts it.
    i_outer, j_outer, _, _ = s[C].tile(*C.op.axis, 128, 256)
    block = s[C].fuse(i_outer, j_outer)
    s[C].bind(block, te.thread_axis("blockIdx.x"))
    P.set_scope("L0C")
    P.compute_at(s[C], block)
    print("\nin blocks:", akg.lower(s, args), sep="\n")

    # k in chunks: 256 through L1, 64 through L0A and L0B.
    (k,) = P.op.reduce_axis
    outer, inner = P.split(k, factor=64)
    outer, middle = P.split(outer, factor=4)
    P.reorder(outer, middle, *P.op.axis, inner)
    staged = []
    for tensor, memory in ((A, "L0A"), (B, "L0B")):
        l1 = s.cache_read(tensor, "L1", [P])
        l0 = s.cache_read(l1, memory, [P])
        s[l1].compute_at(P, outer)
        s[l0].compute_at(P, middle)
        staged += [l1, l0]
    print("\nstaged:", akg.lower(s, args), sep="\n")
    print()
    report("one slot each", s, args)

    # Two slots per buffer: a copy fills one while the cube reads the other.
    for tensor in staged[1::2]:
        s[tensor].double_buffer()
    report("two slots in L0A and L0B", s, args)
    for tensor in staged[::2]:
        s[tensor].double_buffer()
    kernel = report("two slots in L1, too", s, args)
    print(kernel.profile())

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, t.shape).astype("float16") for t in (A, B))
    expected = (a.astype("float32") @ b.astype("float32")).astype("float16")
    assert np.array_equal(kernel(a, b), expected)
    print("values are right; faults found by the checking mode:", len(kernel.check()))

    # A trace is data: it goes through JSON and makes the same schedule of an equal graph.
    saved = json.dumps(s.trace.to_json())
    again = product()
    replayed = te.create_schedule(again[-1].op)
    te.Trace.from_json(json.loads(saved)).replay(replayed)
    print("\nthe trace, replayed:", replayed.trace, sep="\n")
    assert replayed.trace == s.trace
    report("replayed", replayed, again)


if __name__ == "__main__":
    main()
