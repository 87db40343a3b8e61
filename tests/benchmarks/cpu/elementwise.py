"""Chains of element-wise operations: bias + gelu in both forms, an AdamW step, a chain of twelve.

The floor is a plain copy that moves as many bytes as the kernel must read and write. numpy and
torch eager write into arrays made beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from akg_py import ops, te
from tests.benchmarks.cpu.harness import ONE_THREAD, Array, Bar, Candidate, Case, ours
from tests.benchmarks.cpu.peers import compiled, copies, from_torch, tensor, torch

TITLE = "element-wise chains"
BARS = (
    Bar("copy", 1 / 1.25),
    Bar("numpy", 7.0),
    Bar("torch.compile", 3.0),
    Bar(ONE_THREAD, 1.3, threads=2, least_ms=1.0),
)
PROFILE = """
AdamW misses numpy's and torch.compile's bars because it is bound by memory and every side runs in
place: a step reads four arrays and writes three, ours faster than a plain copy moves as many bytes
(the written lines are in the cache already). numpy makes 13 passes over two or three arrays each,
which is four times as many bytes; 7 times its speed would be above what one core reads or copies
(`cpu_ceilings.md`). torch.compile emits the same single pass, and allocates nothing here.
"""
ROOT_2_PI, CUBE = math.sqrt(2 / math.pi), 0.044715
# AdamW: decay, learning rate corrected for bias, betas, epsilon of the corrected root
RATE, DECAY, BETA1, BETA2, EPSILON = 1e-3, 0.01, 0.9, 0.999, 1e-8


def erf(x: Array) -> Array:
    """The error function by numpy, in float64: a series, and a continued fraction in the tail."""
    x = x.astype(np.float64)
    small, big = np.clip(np.abs(x), 0, 2), np.maximum(np.abs(x), 2)
    term, total = small.copy(), small.copy()
    for n in range(1, 40):
        term = -term * small * small / n
        total = total + term / (2 * n + 1)
    fraction = np.zeros_like(big)
    for n in range(60, 0, -1):
        fraction = n / 2 / (big + fraction)
    tail = 1 - np.exp(-big * big) / (math.sqrt(math.pi) * (big + fraction))
    return np.copysign(np.where(np.abs(x) < 2, total * 2 / math.sqrt(math.pi), tail), x)


def numpy_gelu(form: str, x: Array, t: Array, out: Array, u: Array | None = None) -> None:
    """GELU with `out=`; numpy has no erf, so a textbook fit takes its place."""
    if form == "tanh":
        np.multiply(x, x, out=t)
        np.multiply(t, np.float32(CUBE), out=t)
        np.add(t, np.float32(1), out=t)
        np.multiply(t, x, out=t)
        np.multiply(t, np.float32(ROOT_2_PI), out=t)
        np.tanh(t, out=t)
    else:  # Abramowitz and Stegun 7.1.26 for |x|, then its sign
        np.abs(x, out=t)
        np.multiply(t, np.float32(math.sqrt(0.5)), out=t)
        np.multiply(t, np.float32(0.3275911), out=u)
        np.add(u, np.float32(1), out=u)
        np.reciprocal(u, out=u)
        np.multiply(u, np.float32(1.061405429), out=out)
        for c in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            np.add(out, np.float32(c), out=out)
            np.multiply(out, u, out=out)
        np.multiply(t, t, out=t)
        np.negative(t, out=t)
        np.exp(t, out=t)
        np.multiply(t, out, out=t)
        np.subtract(np.float32(1), t, out=t)
        np.copysign(t, x, out=t)
    np.add(t, np.float32(1), out=t)
    np.multiply(t, x, out=t)
    np.multiply(t, np.float32(0.5), out=out)


def bias_gelu(form: str, M: int, N: int) -> Case:
    X, bias = te.placeholder((M, N), name="X"), te.placeholder((N,), name="bias")
    C = ops.gelu(ops.bias_add(X, bias), form)
    rng = np.random.default_rng(0)
    x, b = (rng.standard_normal(t.shape, np.float32) for t in (X, bias))
    y, t, d, u = (np.empty_like(x) for _ in range(4))

    def chain() -> None:
        np.add(x, b, out=y)
        numpy_gelu(form, y, t, d, u)

    e, f = np.empty_like(x), np.empty_like(x)
    tx, tb, te_, tf = (tensor(a) for a in (x, b, e, f))
    approximate = "tanh" if form == "tanh" else "none"

    def eager() -> None:
        torch.add(tx, tb, out=te_)
        torch.ops.aten.gelu.out(te_, approximate=approximate, out=tf)

    def fused(x: Any, b: Any) -> Any:
        return torch.nn.functional.gelu(x + b, approximate=approximate)

    v = (x + b).astype(np.float64)
    inner = np.tanh(ROOT_2_PI * (v + CUBE * v**3)) if form == "tanh" else erf(v * math.sqrt(0.5))
    return Case(
        f"bias + gelu ({form}) {M}x{N}",
        [
            ours([X, bias], [C], [x, b]),
            *copies(x.nbytes),
            Candidate("numpy", chain, [d]),
            *from_torch("torch", eager, f),
            *compiled(fused, tx, tb),
        ],
        [(v * 0.5 * (1 + inner)).astype(np.float32)],
        atol=3e-6,
        work=2e-9 * x.nbytes,
    )


def adamw(count: int) -> Case:
    """One step on parameters and both moments, in place; gradients are read."""
    P, G, M, V = (te.placeholder((count,), name=n) for n in "PGMV")
    M2 = te.compute((count,), lambda i: M[i] * BETA1 + G[i] * (1 - BETA1), name="M2")
    V2 = te.compute((count,), lambda i: V[i] * BETA2 + G[i] * G[i] * (1 - BETA2), name="V2")
    P2 = te.compute(
        (count,),
        lambda i: P[i] * (1 - RATE * DECAY) - M2[i] * RATE / (te.sqrt(V2[i]) + EPSILON),
        name="P2",
    )
    rng = np.random.default_rng(0)
    p, g, m = (rng.standard_normal(count, np.float32) for _ in range(3))
    v = np.square(rng.standard_normal(count, np.float32)) + np.float32(0.1)
    m2, v2 = m * BETA1 + g * (1 - BETA1), v * BETA2 + g * g * (1 - BETA2)
    p2 = p * (1 - RATE * DECAY) - m2 * RATE / (np.sqrt(v2) + EPSILON)
    state = [x.copy() for x in (p, m, v)]
    q, n, w = (x.copy() for x in (p, m, v))
    t, u = np.empty_like(p), np.empty_like(p)

    def chain() -> None:
        np.multiply(n, np.float32(BETA1), out=n)
        np.multiply(g, np.float32(1 - BETA1), out=t)
        np.add(n, t, out=n)
        np.multiply(w, np.float32(BETA2), out=w)
        np.multiply(g, g, out=t)
        np.multiply(t, np.float32(1 - BETA2), out=t)
        np.add(w, t, out=w)
        np.sqrt(w, out=t)
        np.add(t, np.float32(EPSILON), out=t)
        np.multiply(n, np.float32(RATE), out=u)
        np.divide(u, t, out=t)
        np.multiply(q, np.float32(1 - RATE * DECAY), out=q)
        np.subtract(q, t, out=q)

    eager_state = [x.copy() for x in (p, m, v)]
    tp, tm, tv = (tensor(x) for x in eager_state)
    tg = tensor(g)

    def eager() -> None:
        tm.mul_(BETA1).add_(tg, alpha=1 - BETA1)
        tv.mul_(BETA2).addcmul_(tg, tg, value=1 - BETA2)
        tp.mul_(1 - RATE * DECAY).addcdiv_(tm, tv.sqrt().add_(EPSILON), value=-RATE)

    quick_state = [x.copy() for x in (p, m, v)]

    def step(p: Any, g: Any, m: Any, v: Any) -> Any:
        m.mul_(BETA1).add_(g, alpha=1 - BETA1)
        v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
        p.mul_(1 - RATE * DECAY).addcdiv_(m, v.sqrt().add_(EPSILON), value=-RATE)
        return p, m, v

    sp, sm, sv = (tensor(x) for x in quick_state)
    kernel = ours(
        [P, G, M, V], [P2, M2, V2], [state[0], g, *state[1:]], inplace={P2: P, M2: M, V2: V}
    )
    return Case(
        f"AdamW step {count}",
        [
            kernel,
            *copies(p.nbytes * 7 // 2),
            Candidate("numpy", chain, [q, n, w]),
            *from_torch("torch", eager, *eager_state),
            *compiled(step, sp, tg, sm, sv),
        ],
        [p2, m2, v2],
        work=7e-9 * p.nbytes,
    )


def twelve(x: Any, y: Any, low: Any, high: Any, absolute: Any) -> Any:
    """Twelve operations on two operands, with one library's functions or another's."""
    u = high(low(x * 0.5 + y, 1.0), -1.0)
    v = absolute(u * u - x)
    return (v + 1.5) * (y - u) / (v + 2.0) * 0.25


def chain_of_twelve(M: int, N: int) -> Case:
    X, Y = te.placeholder((M, N), name="X"), te.placeholder((M, N), name="Y")
    C = te.compute(
        (M, N),
        lambda i, j: twelve(X[i, j], Y[i, j], te.minimum, te.maximum, te.abs),
        name="C",
    )
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((M, N), np.float32) for _ in range(2))
    u, v, w, d = (np.empty_like(x) for _ in range(4))
    f = np.float32

    def chain() -> None:
        np.multiply(x, f(0.5), out=u)
        np.add(u, y, out=u)
        np.minimum(u, f(1), out=u)
        np.maximum(u, f(-1), out=u)
        np.multiply(u, u, out=v)
        np.subtract(v, x, out=v)
        np.abs(v, out=v)
        np.add(v, f(1.5), out=w)
        np.subtract(y, u, out=u)
        np.multiply(w, u, out=w)
        np.add(v, f(2), out=v)
        np.divide(w, v, out=w)
        np.multiply(w, f(0.25), out=d)

    e1, e2, e3, e = (np.empty_like(x) for _ in range(4))
    tx, ty, tu, tv, tw, td = (tensor(a) for a in (x, y, e1, e2, e3, e))

    def eager() -> None:
        torch.mul(tx, 0.5, out=tu)
        torch.add(tu, ty, out=tu)
        torch.clamp(tu, -1.0, 1.0, out=tu)
        torch.mul(tu, tu, out=tv)
        torch.sub(tv, tx, out=tv)
        torch.abs(tv, out=tv)
        torch.add(tv, 1.5, out=tw)
        torch.sub(ty, tu, out=tu)
        torch.mul(tw, tu, out=tw)
        torch.add(tv, 2.0, out=tv)
        torch.div(tw, tv, out=tw)
        torch.mul(tw, 0.25, out=td)

    def fused(x: Any, y: Any) -> Any:
        return twelve(
            x, y, lambda a, top: a.clamp(max=top), lambda a, low: a.clamp(min=low), torch.abs
        )

    return Case(
        f"12 operations {M}x{N}",
        [
            ours([X, Y], [C], [x, y]),
            *copies(x.nbytes * 3 // 2),
            Candidate("numpy", chain, [d]),
            *from_torch("torch", eager, e),
            *compiled(fused, tx, ty),
        ],
        [twelve(x, y, np.minimum, np.maximum, np.abs)],
        work=3e-9 * x.nbytes,
    )


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    for form in ("tanh", "erf"):
        label = f"bias + gelu ({form}) 4096x4096"
        yield label, lambda form=form: bias_gelu(form, 4096, 4096)
    yield "AdamW step 8388608", lambda: adamw(1 << 23)
    yield "12 operations 4096x4096", lambda: chain_of_twelve(4096, 4096)
