"""Fits the coefficients of `akg_py/codegen/polynomials.py` and prints the file's tables.

    python tests/codegen/fit_polynomials.py

A polynomial minimises the largest error, weighted by what the error does to the result, by Remez'
exchange on a grid in 50 digits; the rational functions by weighted least squares (Lawson). The
coefficients are then rounded to the format. Nothing is copied from tables.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 50
Function = Callable[[mp.mpf], mp.mpf]
FRACTION = {"float": 24, "double": 53}


def fit(f: Function, lo: float, hi: float, degree: int, scale: Function) -> list[mp.mpf]:
    """p with the smallest largest |p - f| * |scale| on lo .. hi, lowest coefficient first."""
    points = degree + 2
    nodes = [mp.cos(mp.pi * (i + 0.5) / (32 * points)) for i in range(32 * points)]
    grid = [(mp.mpf(lo) + hi + (mp.mpf(lo) - hi) * node) / 2 for node in nodes]
    wanted, weight = [f(x) for x in grid], [abs(scale(x)) for x in grid]
    chosen = [16 + 32 * i for i in range(points)]
    for _ in range(30):
        rows = [
            [grid[at] ** j for j in range(degree + 1)] + [(-1) ** i / weight[at]]
            for i, at in enumerate(chosen)
        ]
        solved = mp.lu_solve(mp.matrix(rows), mp.matrix([wanted[at] for at in chosen]))
        found = list(solved)[:-1]
        error = [
            (mp.polyval(found[::-1], x) - y) * w
            for x, y, w in zip(grid, wanted, weight, strict=True)
        ]
        runs: list[int] = []  # the largest error of each run of equal signs
        for at, e in enumerate(error):
            if not runs or (e > 0) != (error[runs[-1]] > 0):
                runs.append(at)
            elif abs(e) > abs(error[runs[-1]]):
                runs[-1] = at
        while len(runs) > points:
            runs.pop(0 if abs(error[runs[0]]) < abs(error[runs[-1]]) else -1)
        if len(runs) < points or runs == chosen:
            break
        chosen = runs
    print(f"# largest weighted error {float(max(abs(e) for e in error)):.1e}")
    return found


def fit_rational(
    f: Function, lo: float, hi: float, top: int, bottom: int, count: int = 800
) -> tuple[list[float], list[float]]:
    """P / Q close to f in relative error: linearised, with the last Q as a weight.

    The leading coefficient of Q is made 1, which saves a multiplication.
    """
    x = 0.5 * (lo + hi) + 0.5 * (hi - lo) * np.cos(np.pi * (np.arange(count) + 0.5) / count)
    y = np.array([float(f(mp.mpf(float(v)))) for v in x])
    p_basis = np.vander(x / hi, top + 1, increasing=True)
    q_basis = np.vander(x / hi, bottom + 1, increasing=True)[:, 1:]
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
    print(f"# largest relative error {best:.1e}")
    powers = hi ** np.arange(max(top, bottom) + 1)
    p, q = result[0] / powers[: top + 1], result[1] / powers[1 : bottom + 1]
    return (p / q[-1]).tolist(), [1 / q[-1], *(q / q[-1]).tolist()]


def rounded(value: mp.mpf, bits: int, to: Function = mp.nint) -> mp.mpf:
    """`value` with so many significant bits."""
    step = mp.mpf(2) ** (int(mp.floor(mp.log(abs(value), 2))) - bits + 1)
    return to(value / step) * step


def show(name: str, **tables: list[mp.mpf] | list[float]) -> None:
    """A coefficient tuple per format."""
    parts = [
        f'"{elem}": ({", ".join(repr(float(rounded(mp.mpf(c), FRACTION[elem]))) for c in table)})'
        for elem, table in tables.items()
    ]
    print(f"{name}: Table = {{{', '.join(parts)}}}")


def show_parts(name: str, value: mp.mpf, **bits: tuple[int, ...]) -> None:
    """`value` as a sum of positive numbers of so many bits: multiples of a short one are exact."""
    tables = {}
    for elem, sizes in bits.items():
        parts: list[mp.mpf] = []
        for n in sizes:
            parts.append(rounded(value - sum(parts), n, mp.floor))
        tables[elem] = parts
    show(name, **tables)


def even(f: Function, at_zero: mp.mpf) -> Function:
    """f of the square root of its argument."""
    return lambda t: f(mp.sqrt(t)) if t > 1e-25 else at_zero


def main() -> None:
    both = ("float", "double")
    half = mp.log(2) / 2 * mp.mpf("1.0001")
    q: Function = lambda r: (mp.expm1(r) - r) / r**2 if abs(r) > 1e-20 else mp.mpf(1) / 2  # noqa: E731
    show(
        "EXP",
        **{e: fit(q, -half, half, d, lambda r: r * r) for e, d in zip(both, (4, 9), strict=True)},
    )
    show("EXPM1", **{e: fit(q, -half, half, d, abs) for e, d in zip(both, (5, 10), strict=True)})
    p: Function = lambda r: mp.expm1(r * mp.log(2)) / r if abs(r) > 1e-20 else mp.log(2)  # noqa: E731
    show("EXP2", **{e: fit(p, -0.5001, 0.5001, d, abs) for e, d in zip(both, (5, 10), strict=True)})

    show("EXP2_SHORT", double=fit(p, -0.5001, 0.5001, 6, abs))

    lo, hi = mp.mpf(-0.25), mp.mpf(0.5)
    l3: Function = lambda f: (  # noqa: E731
        (mp.log1p(f) - f + f * f / 2) / f**3 if abs(f) > 1e-12 else mp.mpf(1) / 3
    )
    show("LOG", float=fit(l3, lo, hi, 7, lambda f: f * f))
    edge = mp.mpf(1) / 25  # (f / (2 + f))**2
    series: Function = even(lambda s: 2 * (mp.atanh(s) - s) / s**3, mp.mpf(2) / 3)
    show("LOG_QUOTIENT", double=fit(series, 0, edge, 6, lambda t: t / 2))

    quarter = (mp.pi / 4) ** 2 * mp.mpf("1.001")
    f = even(lambda r: (mp.sin(r) / r - 1) / r**2, -mp.mpf(1) / 6)
    show(
        "SIN", **{e: fit(f, 0, quarter, d, lambda t: t) for e, d in zip(both, (2, 6), strict=True)}
    )
    f = even(lambda r: (mp.cos(r) - 1 + r * r / 2) / r**4, mp.mpf(1) / 24)
    show(
        "COS",
        **{e: fit(f, 0, quarter, d, lambda t: t * t) for e, d in zip(both, (2, 6), strict=True)},
    )
    f = even(lambda r: (mp.sinh(r) / r - 1) / r**2, mp.mpf(1) / 6)
    show("SINH", **{e: fit(f, 0, 1, d, lambda t: t) for e, d in zip(both, (3, 6), strict=True)})
    f = even(lambda r: (mp.asin(r) / r - 1) / r**2, mp.mpf(1) / 6)
    show("ASIN", **{e: fit(f, 0, 0.25, d, lambda t: t) for e, d in zip(both, (4, 12), strict=True)})
    f = even(lambda r: (mp.atan(r) / r - 1) / r**2, -mp.mpf(1) / 3)
    show("ATAN", **{e: fit(f, 0, 1, d, lambda t: t) for e, d in zip(both, (8, 19), strict=True)})
    f = even(lambda r: (mp.tanh(r) / r - 1) / r**2, -mp.mpf(1) / 3)
    show("TANH", double=fit(f, 0, 0.3025, 10, lambda t: t))
    f = even(lambda r: mp.erf(r) / r - 1, 2 / mp.sqrt(mp.pi) - 1)
    show("ERF", double=fit(f, 0, 1, 11, lambda t: mp.mpf(1)))
    f = lambda x: mp.erfc(x) * mp.exp(x * x)  # noqa: E731
    size: Function = lambda u: 3 * (1 + u) / (1 - u)  # noqa: E731
    to_u: Function = lambda x: mp.mpf(x - 3) / (x + 3)  # noqa: E731
    weight: Function = lambda u: mp.exp(-(size(u) ** 2))  # noqa: E731
    show("ERFC", double=fit(lambda u: f(size(u)), to_u(0.9), to_u(6), 12, weight))

    for name, g, limit, top, bottom in (("TANH", mp.tanh, 9.02, 6, 3), ("ERF", mp.erf, 3.93, 5, 5)):
        tables = fit_rational(
            even(lambda r, g=g: g(r) / r, mp.mpf(1)), 1e-12, limit**2, top, bottom
        )
        for part, table in zip("PQ", tables, strict=True):
            show(f"{name}_{part}", float=table)

    f = even(lambda s: 2 * mp.atanh(s) / mp.log(2) / s, 2 / mp.log(2))
    show("LOG2", double=fit(f, 0, edge, 4, lambda t: mp.mpf(1)))
    last: Function = even(
        lambda s: 2 * (mp.atanh(s) - s - s**3 / 3) / s**5 / mp.log(2), mp.mpf(2) / 5 / mp.log(2)
    )
    show("LOG2_TAIL", double=fit(last, 0, edge, 7, lambda t: t * t))
    show_parts("LN2", mp.log(2), float=(12, 24), double=(41, 53))
    show_parts("LOG10_2", mp.log10(2), float=(12, 24), double=(41, 53))
    show_parts("HALF_PI", mp.pi / 2, float=(24, 24, 24), double=(53, 53, 53))
    show_parts("LOG2_FIRST", 2 / mp.log(2), double=(53, 53))
    show_parts("LOG2_SECOND", 2 / (3 * mp.log(2)), double=(53, 53))


if __name__ == "__main__":
    main()
