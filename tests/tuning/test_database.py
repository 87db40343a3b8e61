"""The record file: appends, damage, schemas, merging."""

import json
import subprocess
import sys
import textwrap
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from akg_py.errors import DatabaseError
from akg_py.tuning import database as module
from akg_py.tuning.database import Database, DatabaseWarning, check_writable, merge
from akg_py.tuning.record import Record


def record(us=10.0, workload="add:shape=8x8,dtype=float16", key="k1", target="ascend910b3", **more):
    return Record(
        workload,
        key,
        target,
        {"tile": 1},
        [["split", "C", ["i"], {"factor": 4}, 0]],
        {"simulated_us": us},
        **more,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.jsonl"


def test_missing_and_empty_files_are_empty_databases(path):
    assert len(Database(path)) == 0
    path.write_text("")
    assert len(Database(path)) == 0
    Database(path).append(record())
    assert len(Database(path)) == 1


def test_append_then_read_gives_the_record_back(path):
    database = Database(path)
    database.append(record(baseline={"simulated_us": 20.0}, trials={"completed": 3}))
    again = Database(path)
    assert list(again) == list(database)
    assert json.loads(path.read_text().splitlines()[0]) == {"akg_py_database": 1}
    assert next(iter(again)).speedup == 2.0


def test_best_prefers_time_then_digest_and_needs_key_and_target(path):
    database = Database(path)
    for r in (
        record(5.0),
        record(3.0),
        record(1.0, target="cpu"),
        record(0.5, key="other"),
        record(float("nan")),
    ):
        database.append(r)
    assert database.best("k1", "ascend910b3").simulated_us == 3.0
    assert database.best("k1", "ascend910b4") is None


def test_best_prefers_checked_values(path):
    database = Database(path)
    database.append(record(1.0, verified="no: interrupted"))
    assert database.best("k1", "ascend910b3").simulated_us == 1.0
    database.append(record(2.0, verified="full, bit-exact"))
    assert database.best("k1", "ascend910b3").simulated_us == 2.0


@pytest.mark.parametrize("cost", [0, -1.0, float("inf"), None, "fast"])
def test_unusable_times_never_win(path, cost):
    database = Database(path)
    database.append(record(cost))
    assert database.best("k1", "ascend910b3") is None


@pytest.mark.parametrize("cut", [1, 20, 150])
def test_torn_last_line_is_skipped_and_the_next_append_is_whole(path, cut):
    database = Database(path)
    database.append(record(1.0))
    database.append(record(2.0))
    data = path.read_bytes()
    path.write_bytes(data[:-cut] if cut > 1 else data[:-2])
    with pytest.warns(DatabaseWarning, match="line 3: torn"):
        torn = Database(path)
    assert len(torn) == 1
    torn.append(record(3.0))
    with pytest.warns(DatabaseWarning, match="line 3: no JSON"):
        after = Database(path)
    assert sorted(r.simulated_us for r in after) == [1.0, 3.0]


def test_last_line_without_newline_is_kept(path):
    Database(path).append(record(1.0))
    path.write_bytes(path.read_bytes()[:-1])
    Database(path).append(record(2.0))
    assert len(Database(path)) == 2


@pytest.mark.parametrize("keep", [1, 8, 20])
def test_torn_header(path, keep):
    Database(path).append(record(1.0))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.warns(DatabaseWarning):
        Database(path).append(record(2.0))
    with pytest.warns(DatabaseWarning):
        assert len(Database(path)) == 1


def test_foreign_and_damaged_lines_are_named(path):
    database = Database(path)
    database.append(record(1.0))
    good = path.read_text().splitlines()[1]
    with open(path, "a") as file:
        file.write("# a comment\n\n[1, 2]\n")
        file.write(good.replace('"simulated_us":1.0', '"simulated_us":0.1') + "\n")
        file.write('{"digest": "x", "record": {}}\n')
    with pytest.warns(DatabaseWarning) as seen:
        again = Database(path)
    assert len(again) == 1 and len(again.problems) == 4
    text = str(seen[0].message)
    assert (
        "line 3: no JSON" in text and "line 5: not a record" in text and "line 6: damaged" in text
    )


def test_mistyped_record_is_skipped(path):
    data = {**record().to_json(), "config": "oops"}
    path.write_text(
        json.dumps({"akg_py_database": 1})
        + "\n"
        + json.dumps({"digest": module.digest_of(data), "record": data})
    )
    with pytest.warns(DatabaseWarning, match="config of a record is str"):
        assert len(Database(path)) == 0


def test_unknown_fields_of_a_record_are_ignored(path):
    data = {**record().to_json(), "colour": "red"}
    path.write_text(
        json.dumps({"akg_py_database": 1})
        + "\n"
        + json.dumps({"digest": module.digest_of(data), "record": data})
        + "\n"
    )
    assert len(Database(path)) == 1


def test_newer_schema_is_refused_for_reading_and_appending(path):
    Database(path)
    stale = Database(path)
    path.write_text('{"akg_py_database": 99}\n')
    with pytest.raises(DatabaseError, match=r"schema 99.*reads up to 1") as info:
        Database(path)
    assert "upgrade" in info.value.hint
    with pytest.raises(DatabaseError, match="schema 99"):
        stale.append(record())
    assert path.read_text() == '{"akg_py_database": 99}\n'


@pytest.mark.parametrize("content", ["hello\n", '{"a": 1}\n', "\x00\x01binary", "[]\n{}\n"])
def test_other_files_are_no_databases(path, content):
    stale = Database(path)
    path.write_text(content)
    if content.endswith("\n"):
        with pytest.raises(DatabaseError, match="no tuning database"):
            Database(path)
    with pytest.raises(DatabaseError, match="no tuning database"):
        stale.append(record())
    assert path.read_text() == content


def test_unwritable_paths(tmp_path):
    with pytest.raises(DatabaseError, match="no such directory"):
        check_writable(tmp_path / "a" / "b.jsonl")
    with pytest.raises(DatabaseError, match="no such directory"):
        Database(tmp_path / "a" / "b.jsonl").append(record())
    with pytest.raises(DatabaseError, match="can't read"):
        Database(tmp_path)
    check_writable(tmp_path / "fine.jsonl")
    assert not (tmp_path / "fine.jsonl").exists()


def test_failed_write_leaves_the_file_as_it_was(path, monkeypatch):
    database = Database(path)
    database.append(record(1.0))
    before = path.read_bytes()

    def no_sync(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", no_sync)
    with pytest.raises(DatabaseError, match="No space left"):
        database.append(record(2.0))
    assert path.read_bytes() == before


def test_two_processes_append_at_once(path):
    script = textwrap.dedent("""
        import sys
        from akg_py.tuning.database import Database
        from akg_py.tuning.record import Record
        database = Database(sys.argv[1])
        for n in range(40):
            config = {"n": n, "by": sys.argv[2]}
            database.append(Record("w", "k", "t", config, [], {"simulated_us": 1.0}))
        """)
    runs = [subprocess.Popen([sys.executable, "-c", script, str(path), who]) for who in "ab"]
    assert [run.wait() for run in runs] == [0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Database(path)) == 80


def test_merge_is_commutative_and_idempotent(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    for r in (record(1.0), record(2.0)):
        Database(a).append(r)
    for r in (record(2.0), record(3.0, workload="mul:shape=1x1")):
        Database(b).append(r)
    merge([a, b], tmp_path / "ab")
    merge([b, a], tmp_path / "ba")
    assert (tmp_path / "ab").read_bytes() == (tmp_path / "ba").read_bytes()
    merge([a, b], tmp_path / "ab")
    assert (tmp_path / "ab").read_bytes() == (tmp_path / "ba").read_bytes()
    assert len(Database(tmp_path / "ab")) == 3
    merge([b], a)
    assert a.read_bytes() == (tmp_path / "ab").read_bytes()
    with pytest.raises(DatabaseError, match="no such database"):
        merge([tmp_path / "none"], tmp_path / "c")


def test_appending_the_same_record_twice_counts_once(path):
    database = Database(path)
    database.append(record())
    database.append(record())
    assert len(database) == len(Database(path)) == 1


def test_find_by_prefix(path):
    database = Database(path)
    database.append(record(2.0))
    database.append(record(1.0))
    database.append(record(1.0, workload="mul:shape=1x1", key="k2"))
    assert [r.simulated_us for r in database.find("add")] == [1.0, 2.0]
    assert len(database.find("k2")) == 1 and not database.find("nothing")
    assert [r.workload for r in database.all_best()] == [
        "add:shape=8x8,dtype=float16",
        "mul:shape=1x1",
    ]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damage_never_does_more_than_hide_lines(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("db") / "t.jsonl"
    database = Database(path)
    for us in (1.0, 2.0, 3.0):
        database.append(record(us))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["change", "cut", "insert"])):
            case "change":
                content[place] = data.draw(st.integers(0, 255))
            case "cut":
                del content[place:]
                content += b"x"
            case "insert":
                content[place:place] = data.draw(st.binary(min_size=1, max_size=5))
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DatabaseWarning)
        try:
            damaged = Database(path)
            damaged.append(record(9.0))
        except DatabaseError:
            return
        assert 9.0 in [r.simulated_us for r in Database(path)]
        assert {r.simulated_us for r in damaged} <= {1.0, 2.0, 3.0, 9.0}
