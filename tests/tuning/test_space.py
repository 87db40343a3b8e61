"""Search spaces: reading, enumeration, checks, defaults, estimates, and users' mistakes."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akg_py.cost.expressions import Scope
from akg_py.cost.space import Config, SearchSpace
from akg_py.errors import SpaceError

SIZES = {"m": 1000, "n": 300, "l0c_bytes": 131072, "rate": 1.5}
TEXT = """
op = "demo"
[knobs]
order = ["rows", "cols"]
[knobs.tile_m]
multiples_of = 16
upto = "min(m, 256)"
[knobs.tile_n]
powers_of_two_from = 16
upto = "n"
[[constraints]]
require = "tile_m * tile_n * 4 <= l0c_bytes"
reason = "the accumulator doesn't fit L0C"
[[constraints]]
require = "order == 'rows' or tile_m <= 64"
reason = "columns first needs low tiles"
[defaults]
tile_m = "m // 8"
tile_n = 64
order = "cols"
[estimate]
blocks = "ceildiv(m, tile_m) * ceildiv(n, tile_n)"
seconds = "(blocks * (tile_m * tile_n / 256 + 100) if order == 'rows' else blocks * 1000.0) * 1e-9"
"""


def load(text, sizes=SIZES):
    return SearchSpace.load(text, "demo.toml", sizes).bind(sizes)


@pytest.fixture
def space():
    return load(TEXT)


def test_enumeration_equals_checking_every_point(space):
    found = {space.config_at(n).digest for n in range(len(space))}
    expected = set()
    for order in ("rows", "cols"):
        for tile_m in range(16, 257, 16):
            for tile_n in (16, 32, 64, 128, 256):
                config = {"order": order, "tile_m": tile_m, "tile_n": tile_n}
                with contextlib.suppress(SpaceError):
                    expected.add(space.check(config).digest)
    assert found == expected and len(found) == len(space)


def test_estimate_of_one_equals_the_array(space):
    predicted = space.predict()
    for row in (0, 7, len(space) - 1):
        assert space.estimate_one(space.config_at(row))["seconds"] == pytest.approx(
            predicted[row], rel=1e-12
        )


def test_default_is_the_nearest_feasible(space):
    assert space.default() == {"order": "cols", "tile_m": 64, "tile_n": 64}


def test_infeasible_config_names_constraint_and_numbers(space):
    with pytest.raises(SpaceError) as info:
        space.check({"order": "cols", "tile_m": 128, "tile_n": 64})
    text = str(info.value)
    assert (
        "columns first needs low tiles" in text
        and "tile_m = 128" in text
        and "order = cols" in text
    )


@pytest.mark.parametrize(
    ("config", "message", "hint"),
    [
        ({"order": "rows", "tile_m": 16, "tile_k": 16}, "unknown knob tile_k", "tile_m"),
        ({"order": "rows", "tile_m": 16}, "without tile_n", "default config"),
        ({"order": "rows", "tile_m": 17, "tile_n": 16}, "tile_m can't be 17", "16, 32"),
        (
            {"order": "diagonal", "tile_m": 16, "tile_n": 16},
            "order can't be 'diagonal'",
            "rows, cols",
        ),
        ({"order": "rows", "tile_m": 1.5, "tile_n": 16}, "integer or a text", ""),
    ],
)
def test_wrong_configs(space, config, message, hint):
    with pytest.raises(SpaceError, match=message) as info:
        space.check(config)
    assert hint in info.value.hint


def test_empty_space_counts_what_each_constraint_dropped():
    with pytest.raises(SpaceError, match="no config of demo") as info:
        load(TEXT, {**SIZES, "l0c_bytes": 10}).feasible()
    assert "dropped 100: the accumulator" in info.value.message and info.value.hint


def test_too_many_configs():
    knobs = "\n".join(f"[knobs.k{n}]\nmultiples_of = 1\nupto = 1000" for n in range(3))
    with pytest.raises(SpaceError, match="more than 4,000,000 configs at knob k2"):
        load(knobs).feasible()


def test_space_without_knobs_has_one_config():
    space = load("op = 'x'")
    assert len(space) == 1 and space.default() == {} and space.config_at(0) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[knobs", "not a TOML file"),
        ("[nobs]\na=[1]", "unknown table nobs"),
        ("[knobs]\na = 3", "a list of values or a table"),
        ("[knobs]\na = []", "no values"),
        ("[knobs]\na = [1, 'x']", "mixes"),
        ("[knobs]\na = [1, 1]", "value twice"),
        ("[knobs]\nm = [1]", "name of a size"),
        ("[knobs.a]\nmultiples_of = 16", "needs `upto`"),
        ("[knobs.a]\nvalues = [1]\nup_to = 3", "unknown key up_to"),
        ("[knobs.a]\nvalues = [1]\nmultiples_of = 2", "one of values"),
        ("[[constraints]]\nrequire = 'm < 3'", "a `reason`"),
        ("[[constraints]]\nrequire = 'm + 3'\nreason = 'x'", "no condition"),
        ("[[constraints]]\nrequire = 'mm < 3'\nreason = 'x'", "unknown name mm"),
        ("[[constraints]]\nrequire = 'm <'\nreason = 'x'", "can't read the formula"),
        (
            "[[constraints]]\nrequire = '__import__(\"os\") < 3'\nreason = 'x'",
            "unknown function __import__|not allowed",
        ),
        ("[[constraints]]\nrequire = 'm.real < 3'\nreason = 'x'", "not allowed"),
        ("[[constraints]]\nrequire = '(lambda: 1)() < 3'\nreason = 'x'", "not allowed"),
        ("[[constraints]]\nrequire = 'm[0] < 3'\nreason = 'x'", "not allowed"),
        (
            "[knobs]\na = ['x']\n[[constraints]]\nrequire = 'a == \"y\"'\nreason = 'x'",
            "never is 'y'",
        ),
        ("[defaults]\nq = 3", "default of unknown knob q"),
        ("[estimate]\ncycles = 'm'", "doesn't give `seconds`"),
        ("[estimate]\nseconds = 'min(m)'", "at least 2"),
    ],
)
def test_wrong_files_name_the_place(text, message):
    with pytest.raises(SpaceError, match=message) as info:
        load(text)
    assert "demo.toml" in str(info.value)


def test_config_is_an_immutable_mapping():
    config = Config({"a": np.int64(3), "b": "x", "c": True})
    assert config.a == 3 and config["b"] == "x" and dict(config) == {"a": 3, "b": "x", "c": 1}
    assert config.digest == Config({"c": 1, "b": "x", "a": 3}).digest
    with pytest.raises(SpaceError, match="can't be changed"):
        config.a = 4
    with pytest.raises(SpaceError, match="unknown knob aa"):
        config["aa"]


NUMBERS = st.integers(-20, 20)


@st.composite
def formulas(draw, depth=3):
    """Random integer formulas over a, b, c that Python itself can evaluate."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(["a", "b", "c", "7", "-3", "0", "1"]))
    kind = draw(st.sampled_from(["+", "-", "*", "//", "%", "min", "max", "if"]))
    x, y = draw(formulas(depth - 1)), draw(formulas(depth - 1))
    if kind in ("min", "max"):
        return f"{kind}({x}, {y})"
    if kind == "if":
        return f"({x} if {x} < {y} else {y})"
    return (
        f"({x} {kind} {draw(st.sampled_from(['2', '5', '16']))})"
        if kind in ("//", "%")
        else f"({x} {kind} {y})"
    )


@settings(max_examples=200, deadline=None)
@given(formulas(), NUMBERS, NUMBERS, NUMBERS)
def test_formulas_agree_with_python(text, a, b, c):
    scope = Scope(dict.fromkeys("abc", "size"), {})
    formula = scope.parse(text, "t")
    expected = eval(text, {"min": min, "max": max}, {"a": a, "b": b, "c": c})  # the test's own text
    assert int(formula.value({"a": a, "b": b, "c": c}, scope)) == expected
    arrays = {name: np.asarray([v, v]) for name, v in zip("abc", (a, b, c), strict=True)}
    assert np.broadcast_to(formula.value(arrays, scope), (2,)).tolist() == [expected] * 2
