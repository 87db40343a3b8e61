"""The command line: output, exit codes, one clear message for every mistake."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import akg_py
from akg_py.cli import main
from akg_py.tuning.database import Database
from akg_py.tuning.record import Record


def run(*args, cwd=None):
    runner = CliRunner()
    result = runner.invoke(main, list(map(str, args)))
    assert "Traceback" not in result.output
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "t.jsonl"
    kept = Database(path)
    trace = [["split", "C", ["i"], {"factor": 16}, 0], ["compute_inline", "C", [], {}, 1]]
    for us, text in (
        (5.0, "add:shape=8x8,dtype=float16"),
        (4.0, "add:shape=8x8,dtype=float16"),
        (9.0, "relu:shape=1x1,dtype=float16"),
    ):
        kept.append(
            Record(
                text,
                text[:3],
                "ascend910b3",
                {"tile_rows": 4},
                trace,
                {
                    "simulated_us": us,
                    "predicted_us": us * 1.1,
                    "bound": "V",
                    "interval_us": [us * 0.9, us * 1.1],
                },
                {"simulated_us": 10.0, "config": {}},
                {"completed": 12, "failed": 1, "space": 99},
                verified="full",
            )
        )
    return path


def test_targets_and_ops():
    result = run("targets")
    assert result.exit_code == 0 and "ascend910b3" in result.output and "cpu" in result.output
    result = run("ops")
    assert result.exit_code == 0
    assert (
        "matmul(m: int, n: int, k: int, dtype: dtype = float16, out_dtype" in result.output
        and "bert-base" in result.output
    )


def test_help_names_every_command():
    result = run("--help")
    assert result.exit_code == 0
    for name in ("targets", "ops", "tune", "db"):
        assert name in result.output


def test_tune_end_to_end(tmp_path):
    path = tmp_path / "t.jsonl"
    listing = tmp_path / "list.txt"
    listing.write_text("add:shape=16x64\nadd:shape=oops\n")
    result = run(
        "tune", listing, "matmul:m=32,n=32,k=32", "--trials", 4, "--database", path, "--workers", 1
    )
    assert result.exit_code == 1  # one line was left out
    assert "left out" in result.output and "line 2" in result.output
    assert (
        "add:shape=16x64,dtype=float16" in result.output
        and "matmul:m=32,n=32,k=32" in result.output
    )
    assert "default us" in result.output and "all launches" in result.output
    assert len(Database(path)) == 2
    again = run("tune", "matmul:m=32,n=32,k=32", "--trials", 4, "--database", path, "--workers", 1)
    assert again.exit_code == 0 and len(Database(path)) == 2  # nothing was repeated
    shown = run("db", "best", path, "matmul")
    assert shown.exit_code == 0 and 's["C"].split("i"' in shown.output


@pytest.mark.parametrize(
    ("args", "code", "parts"),
    [
        (
            ["tune", "matmull:m=1"],
            1,
            ["ExpressionError: unknown operator 'matmull'", "did you mean matmul"],
        ),
        (["tune", "matmul:m=1,n=1,k=1,dtype=flot16"], 1, ["unknown dtype 'flot16'", "float16"]),
        (["tune", "matmul:m=1,n=1"], 1, ["matmul without k", "hint"]),
        (
            ["tune", "add:shape=4x4", "--target", "ascend910b9"],
            1,
            ["UnsupportedError: unknown target", "ascend910b3"],
        ),
        (["tune", "bert-bse"], 1, ["no workload, file or shipped list", "did you mean bert-base"]),
        (["tune", "none.toml"], 1, ["none.toml: no such file"]),
        (
            ["tune", "add:shape=4x4", "--database", "/no/such/dir/t.jsonl"],
            1,
            ["DatabaseError: /no/such/dir/t.jsonl", "no such directory"],
        ),
        (["tune"], 2, ["Missing argument"]),
        (["tune", "add:shape=4x4", "--trials", "0"], 2, ["--trials"]),
        (["tune", "add:shape=4x4", "--trails", "3"], 2, ["--trails"]),
        (["tnue", "x"], 2, ["did you mean tune"]),
        (["db", "show", "none.jsonl"], 1, ["DatabaseError: none.jsonl: no such database"]),
        (["db", "merge", "none.jsonl", "--into", "x.jsonl"], 1, ["no such database"]),
    ],
)
def test_mistakes(args, code, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*args)
    assert result.exit_code == code, result.output
    for part in parts:
        assert part in result.output
    assert ".py:" not in result.output


def test_db_show_best_export(database, tmp_path):
    shown = run("db", "show", database)
    assert (
        shown.exit_code == 0
        and shown.output.count("add:shape=8x8") == 2
        and "3 records" in shown.output
    )
    best = run("db", "best", database, "add")
    assert (
        "4.00 us" in best.output
        and "speed-up 2.50x" in best.output
        and 's["C"].split("i", factor=16)' in best.output
    )
    assert "5.00" not in best.output
    out = tmp_path / "out.json"
    assert run("db", "export", database, "-o", out).exit_code == 0
    document = json.loads(out.read_text())
    assert [r["workload"].split(":")[0] for r in document["records"]] == ["add", "relu"]
    assert document["records"][0]["schedule"] == [
        's["C"].split("i", factor=16)',
        's["C"].compute_inline()  # auto',
    ]
    missing = run("db", "best", database, "softmax")
    assert (
        missing.exit_code == 1
        and "no record of softmax" in missing.output
        and "it has add" in missing.output
    )
    assert "did you mean relu?" in run("db", "best", database, "rellu").output
    assert run("db", "export", database, "-o", tmp_path / "no" / "x").exit_code == 1


def test_db_merge(database, tmp_path):
    into = tmp_path / "all.jsonl"
    result = run("db", "merge", database, database, "--into", into)
    assert result.exit_code == 0 and "3 records" in result.output
    assert len(Database(into)) == 3


def test_torn_database_warns_and_goes_on(database):
    database.write_bytes(database.read_bytes()[:-30])
    result = run("db", "show", database)
    assert result.exit_code == 0 and "torn" in result.output and "2 records" in result.output


def test_newer_schema(database):
    database.write_text(
        database.read_text().replace('{"akg_py_database":1}', '{"akg_py_database":7}')
    )
    for args in (
        ["db", "show", database],
        ["tune", "add:shape=4x4", "--database", database, "--trials", 1],
    ):
        result = run(*args)
        assert (
            result.exit_code == 1
            and "schema 7" in result.output
            and "upgrade akg_py" in result.output
        )


def test_module_runs_and_stays_light():
    script = (
        "import sys, akg_py.cli.main as m\n"
        "try: m.main(['targets'])\n"
        "except SystemExit as e: assert not e.code\n"
        "assert not {'numba', 'optuna', 'sympy', 'rich'} & set(sys.modules), sorted(sys.modules)\n"
    )
    root = str(Path(akg_py.__file__).parent.parent)
    subprocess.run([sys.executable, "-c", script], check=True, cwd=root, capture_output=True)
    help_text = subprocess.run(
        [sys.executable, "-m", "akg_py", "-h"], check=True, cwd=root, capture_output=True, text=True
    )
    assert "tune" in help_text.stdout
