"""Fits the coefficients of `akg_py/codegen/polynomials.py` and prints them.

    python tests/codegen/fit_polynomials.py

Each fit minimises the largest relative error on Chebyshev points (Lawson's iteration of weighted
least squares, in 40 digits by mpmath for the targets), then rounds the coefficients to float32.
Nothing is copied from tables.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 40
Function = Callable[[mp.mpf], mp.mpf]


def chebyshev(lo: float, hi: float, count: int) -> np.ndarray:
    return 0.5 * (lo + hi) + 0.5 * (hi - lo) * np.cos(np.pi * (np.arange(count) + 0.5) / count)


def evaluate(f: Function, x: np.ndarray) -> np.ndarray:
    return np.array([float(f(mp.mpf(float(v)))) for v in x])


def fit(
    f: Function, lo: float, hi: float, degree: int, scale: Function | None = None, count: int = 600
) -> np.ndarray:
    """p with p(x) close to f(x); the error is |p - f| * |scale|, by default |p - f| / |f|."""
    x = chebyshev(lo, hi, count)
    y = evaluate(f, x)
    s = 1 / np.abs(y) if scale is None else np.abs(evaluate(scale, x))
    weight = np.ones_like(x)
    basis = np.vander(x / max(abs(lo), abs(hi)), degree + 1, increasing=True)
    coefficients = np.zeros(degree + 1)
    best, result = np.inf, coefficients
    for _ in range(60):
        w = np.sqrt(weight) * s
        coefficients = np.linalg.lstsq(basis * w[:, None], y * w, rcond=None)[0]
        error = np.abs(basis @ coefficients - y) * s
        if error.max() < best:
            best, result = error.max(), coefficients
        weight = weight * (error + 1e-30)
        weight /= weight.sum()
    return result / max(abs(lo), abs(hi)) ** np.arange(degree + 1)


def fit_rational(
    f: Function, lo: float, hi: float, top: int, bottom: int, count: int = 800
) -> tuple[np.ndarray, np.ndarray]:
    """P / Q close to f in relative error, Q(0) = 1: linearised, with the last Q as a weight."""
    x = chebyshev(lo, hi, count)
    y = evaluate(f, x)
    u = x / hi
    p_basis, q_basis = (
        np.vander(u, top + 1, increasing=True),
        np.vander(u, bottom + 1, increasing=True)[:, 1:],
    )
    q, weight = np.ones_like(x), np.ones_like(x)
    best, result = np.inf, (np.zeros(top + 1), np.zeros(bottom))
    for _ in range(80):
        w = np.sqrt(weight) / (np.abs(q) * np.abs(y))
        matrix = np.hstack([p_basis, -y[:, None] * q_basis]) * w[:, None]
        c = np.linalg.lstsq(matrix, y * w, rcond=None)[0]
        q = 1 + q_basis @ c[top + 1 :]
        error = np.abs(p_basis @ c[: top + 1] / q - y) / np.abs(y)
        if error.max() < best:
            best, result = error.max(), (c[: top + 1], c[top + 1 :])
        weight = weight * (error + 1e-30)
        weight /= weight.sum()
    powers = hi ** np.arange(max(top, bottom) + 1)
    print(f"# largest relative error {best:.2e}")
    return result[0] / powers[: top + 1], np.concatenate(
        [[1.0], result[1] / powers[1 : bottom + 1]]
    )


def show(name: str, coefficients: np.ndarray, single: bool = True) -> None:
    values = [float(np.float32(c)) if single else float(c) for c in coefficients]
    print(f"{name} = ({', '.join(repr(v) for v in values)})")


def split(value: mp.mpf, bits: tuple[int, ...]) -> list[float]:
    """`value` as a sum of numbers of so many bits each: multiples of the first are exact."""
    parts, rest = [], value
    for n in bits:
        exponent = int(mp.floor(mp.log(abs(rest), 2)))
        step = mp.mpf(2) ** (exponent - n + 1)
        parts.append(float(mp.nint(rest / step) * step))
        rest -= parts[-1]
    return parts


def main() -> None:
    half = float(mp.log(2) / 2) * 1.0001
    q = lambda r: (mp.expm1(r) - r) / r**2 if r else mp.mpf(1) / 2  # noqa: E731
    show("EXP", fit(q, -half, half, 5, lambda r: r * r))
    show("EXPM1", fit(q, -half, half, 6, lambda r: abs(r)))
    lo, hi = float(mp.sqrt(0.5)) - 1 - 1e-6, float(mp.sqrt(2)) - 1 + 1e-6
    l3 = lambda f: (mp.log1p(f) - f + f * f / 2) / f**3 if abs(f) > 1e-9 else mp.mpf(1) / 3  # noqa: E731
    show("LOG", fit(l3, lo, hi, 8, lambda f: f * f))
    quarter = float(mp.pi / 4) ** 2 * 1.001
    sin = lambda t: (mp.sin(mp.sqrt(t)) / mp.sqrt(t) - 1) / t if t else -mp.mpf(1) / 6  # noqa: E731
    cos = lambda t: (mp.cos(mp.sqrt(t)) - 1 + t / 2) / t**2 if t else mp.mpf(1) / 24  # noqa: E731
    show("SIN", fit(sin, 1e-9, quarter, 3, lambda t: t))
    show("COS", fit(cos, 1e-9, quarter, 3, lambda t: t * t))
    root = lambda f: lambda t: f(mp.sqrt(t)) / mp.sqrt(t)  # noqa: E731
    for name, f, limit, top, bottom in (("TANH", mp.tanh, 9.02, 6, 3), ("ERF", mp.erf, 3.93, 5, 5)):
        p, q_ = fit_rational(root(f), 1e-12, limit**2, top, bottom)
        show(f"{name}_P", p)
        show(f"{name}_Q", q_)
    wide = lambda u: 2 * mp.atanh(u) / u if u else mp.mpf(2)  # noqa: E731
    edge = float((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) * 1.0001
    even = lambda t: wide(mp.sqrt(t)) / mp.log(2)  # noqa: E731
    show("LOG2_DOUBLE", fit(even, 1e-12, edge**2, 7), single=False)
    show("EXP2_DOUBLE", fit(lambda r: mp.mpf(2) ** r, -0.5001, 0.5001, 9), single=False)
    print("LN2 =", split(mp.log(2), (12, 24)))
    print("LOG10_2 =", split(mp.log10(2), (12, 24)))
    print("HALF_PI =", split(mp.pi / 2, (30, 53)))


if __name__ == "__main__":
    main()
