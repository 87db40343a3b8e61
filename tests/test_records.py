"""Classes of `akg_py.records` behave as those of `dataclasses`, the oracle here."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import math
import pickle

import pytest

from akg_py import records

OPTIONS = [
    {"frozen": frozen, "slots": slots, "eq": eq, "repr": text}
    for frozen in (False, True)
    for slots in (False, True)
    for eq in (False, True)
    for text in (False, True)
]


def declare(decorate):
    """The same three classes by either decorator."""

    @decorate
    class Base:
        """One field."""

        name: str

    @decorate
    class Point(Base):
        """Every kind of field."""

        x: float
        y: float = 2.0
        place: str = dataclasses.field(default="here", compare=False)
        seen: list[int] = dataclasses.field(default_factory=list, compare=False, repr=False)
        hidden: list[int] = dataclasses.field(default_factory=list, init=False, compare=False)
        fixed: int = dataclasses.field(default=4, init=False)
        late: int = dataclasses.field(init=False)

        def __post_init__(self):
            self.seen.append(1)
            object.__setattr__(self, "late", 5)

    @decorate
    class Own:
        """Methods of its own."""

        x: int

        def __repr__(self):
            return "own"

        def __eq__(self, other):
            return isinstance(other, type(self)) and abs(self.x) == abs(other.x)

    return Base, Point, Own


def outcome(action):
    """What an action gives or raises, comparable between two classes of the same name."""
    try:
        return action()
    except Exception as error:
        return type(error), str(error).partition(" at 0x")[0]


@pytest.fixture(params=OPTIONS, ids=lambda options: "-".join(k for k, v in options.items() if v))
def pair(request):
    options = request.param
    return [
        declare(functools.partial(module.dataclass, **options)) for module in (dataclasses, records)
    ]


def describe(classes):
    """Everything of the three classes that a user can see."""
    Base, Point, Own = classes
    a, b, c = Point("a", 1.0), Point("a", 1.0, place="there", seen=[3]), Point("a", 1.5)
    nan = math.nan
    found = [
        [(f.name, f.init, f.compare, f.repr) for f in dataclasses.fields(Point)],
        Point.__match_args__,
        [a == b, a == c, a == Base("a"), Base("a") == Base("a"), a == 1, a != b],
        [Base(nan) == Base(nan), Base((1, 2)) == Base((1, 2))],
        outcome(lambda: (hash(a) == hash(b), hash(Base("a")) == hash(Base("a")))),
        outcome(lambda: hash(Own(1)) == hash(Own(1))),
        [Own(1) == Own(-1), repr(Own(1)), (a.seen, b.seen, c.seen), a.hidden is b.hidden],
        dataclasses.asdict(b),
        [(p.name, p.annotation) for p in inspect.signature(Point).parameters.values()],
        [getattr(copy.copy(b), f.name) for f in dataclasses.fields(b)],
        [getattr(copy.deepcopy(b), f.name) for f in dataclasses.fields(b)],
        repr(a) if "__repr__" in Point.__dict__ else None,
        outcome(lambda: setattr(a, "x", 3.0)),
        outcome(lambda: delattr(c, "x")),
        outcome(lambda: Point("a")),
        outcome(lambda: Point("a", 1.0, nothing=1)),
        outcome(lambda: Point("a", 1.0, hidden=[])),
    ]
    return found


def test_as_the_standard_ones(pair):
    standard, ours = pair
    assert describe(ours) == describe(standard)


def test_replaced(pair):
    for Base, Point, _ in pair:
        point = dataclasses.replace(Point("a", 1.0, seen=[5]), x=7.0, name="b")
        assert (point.name, point.x, point.y, point.seen) == ("b", 7.0, 2.0, [5, 1, 1])
        assert dataclasses.replace(Base("a"), name="c").name == "c"


@records.dataclass(frozen=True, slots=True)
class Kept:
    """Found by pickle under its name."""

    x: int
    items: tuple[int, ...] = ()


def test_pickled():
    kept = Kept(1, (2, 3))
    again = pickle.loads(pickle.dumps(kept))
    assert again == kept and hash(again) == hash(kept) and again is not kept


def test_only_fields_and_they_never_change():
    kept = Kept(1)
    for name in ("x", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(kept, name, 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match="x"):
        del kept.x


def test_text_of_a_record_within_itself():
    items: list[object] = []
    kept = Kept(1, items)  # type: ignore[arg-type]
    items.append(kept)
    assert repr(kept) == "Kept(x=1, items=[...])"


def test_empty_record():
    @records.dataclass(frozen=True, slots=True)
    class Nothing:
        """No field."""

    assert Nothing() == Nothing() and repr(Nothing()).endswith("Nothing()")
    assert hash(Nothing()) == hash(Nothing())
