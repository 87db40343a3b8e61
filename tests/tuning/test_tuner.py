"""The search: seeds, failures, resume, determinism; timing is faked, processes are real."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path

import pytest

from akg_py import library
from akg_py.errors import DatabaseError, SpaceError
from akg_py.tuning.database import Database
from akg_py.tuning.executor import WorkerPool
from akg_py.tuning.study import open_search
from akg_py.tuning.tuner import Options, journal_path, tune, tune_task

sys.path.insert(0, str(Path(__file__).parent))
import fake_jobs

MATMUL = "matmul:m=256,n=512,k=256"
FAKE = Options(trials=24, objective=fake_jobs.ripple, check=fake_jobs.right)


class Inline(Executor):
    """Runs jobs at once, in this process."""

    def __init__(self):
        self.configs = []

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        if (fn.__module__ == "fake_jobs" and "ripple" in fn.__name__) or "fail" in fn.__name__:
            self.configs.append(tuple(sorted(args[0]["config"].items())))
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture(scope="module")
def task():
    return library.task(MATMUL, "ascend910b3")


def test_record_has_the_evidence(task, tmp_path):
    record = tune_task(task, Inline(), FAKE, database=tmp_path / "t.jsonl")
    assert record.workload == task.workload.text and record.key == task.workload.digest
    assert record.trials == {"completed": 24, "failed": 0, "space": len(task.space)}
    assert record.verified == "full" and record.device and record.space
    assert record.baseline["config"] == dict(task.default)
    assert record.speedup >= 1.0
    assert record.costs["bound"] == "MTE2" and record.costs["peak_share"] > 0
    assert Database(tmp_path / "t.jsonl").best(task.workload.digest, "ascend910b3") == record


def test_first_trial_is_the_default(task):
    pool = Inline()
    tune_task(task, pool, FAKE, database=None)
    assert dict(pool.configs[0]) == dict(task.default)


@pytest.mark.parametrize("sampler", ["ranked", "tpe", "random"])
def test_no_config_is_measured_twice(task, sampler):
    pool = Inline()
    tune_task(task, pool, replace(FAKE, sampler=sampler, patience=99), database=None)
    searched = pool.configs[:24]
    assert len(set(searched)) == len(searched) == 24


def test_same_seed_same_proposals_whatever_the_workers(task):
    runs = []
    for _ in range(2):
        pool = Inline()
        tune_task(task, pool, FAKE, database=None)
        runs.append(pool.configs)
    assert runs[0] == runs[1]


def test_small_space_is_measured_once(tmp_path):
    task = library.task("matmul:m=1,n=1,k=1", "ascend910b3")
    pool = Inline()
    record = tune_task(task, pool, replace(FAKE, trials=500, patience=99), database=None)
    assert record.trials["completed"] == len(task.space) == len(set(pool.configs))


def test_failures_are_counted_and_do_not_win(task):
    record = tune_task(task, Inline(), replace(FAKE, objective=fake_jobs.half_fail), database=None)
    assert record.trials["failed"] > 0 and record.trials["completed"] > 0


def test_all_failed_names_the_first_reason(task):
    with pytest.raises(
        SpaceError, match=r"all 8 configs failed \(8 x ScheduleError\).*no such axis"
    ):
        tune_task(
            task, Inline(), replace(FAKE, trials=8, objective=fake_jobs.all_fail), database=None
        )


def test_a_wrong_winner_is_passed_over(task):
    record = tune_task(task, Inline(), replace(FAKE, check=fake_jobs.first_wrong), database=None)
    best = tune_task(task, Inline(), FAKE, database=None)
    assert record.simulated_us >= best.simulated_us
    with pytest.raises(SpaceError, match="elements differ"):
        tune_task(task, Inline(), replace(FAKE, check=fake_jobs.all_wrong), database=None)


def test_crashing_workers_lose_single_trials(task):
    with WorkerPool(2) as pool:
        record = tune_task(
            task, pool, replace(FAKE, trials=16, objective=fake_jobs.some_crash), database=None
        )
    assert (
        record.trials["failed"] > 0 and record.trials["completed"] + record.trials["failed"] == 16
    )


def test_a_finished_run_is_not_repeated(task, tmp_path):
    first, second = Inline(), Inline()
    a = tune_task(task, first, FAKE, database=tmp_path / "t.jsonl")
    b = tune_task(task, second, FAKE, database=tmp_path / "t.jsonl")
    assert (
        a.config == b.config and len(second.configs) <= 1
    )  # the winner once more, for its details
    assert len(first.configs) == 24


def test_more_trials_go_on(task, tmp_path):
    tune_task(task, Inline(), replace(FAKE, trials=10), database=tmp_path / "t.jsonl")
    pool = Inline()
    record = tune_task(task, pool, replace(FAKE, trials=16), database=tmp_path / "t.jsonl")
    assert record.trials["completed"] == 16 and len(pool.configs) <= 7
    whole = Inline()
    tune_task(task, whole, replace(FAKE, trials=16), database=None)
    assert set(pool.configs) <= set(whole.configs)


def test_two_runs_on_one_journal_are_refused(task, tmp_path):
    with (
        open_search(task.space, "a", tmp_path / "j", seed=0),
        pytest.raises(DatabaseError, match="another process"),
        open_search(task.space, "a", tmp_path / "j", seed=0),
    ):
        pass


def test_unwritable_database_fails_before_the_search(task, tmp_path):
    with pytest.raises(DatabaseError, match="no such directory"):
        tune_task(task, Inline(), FAKE, database=tmp_path / "no" / "t.jsonl")
    with pytest.raises(DatabaseError, match="is a directory"):
        tune_task(task, Inline(), FAKE, database=tmp_path)
    (tmp_path / "t.jsonl.trials").touch()
    with pytest.raises(DatabaseError, match=r"t\.jsonl\.trials: .*directory of the trials"):
        tune_task(task, Inline(), FAKE, database=tmp_path / "t.jsonl")


def test_user_mistakes():
    with pytest.raises(SpaceError, match="trials is 0"):
        tune(MATMUL, trials=0)
    with pytest.raises(SpaceError, match="unknown sampler"):
        tune(MATMUL, sampler="magic", database=None, executor=Inline())


SCRIPT = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
sys.path.insert(0, {folder!r})
import fake_jobs
from dataclasses import replace
from akg_py import library
from akg_py.tuning.executor import WorkerPool
from akg_py.tuning.tuner import Options, tune_task
if __name__ == "__main__":
    task = library.task({workload!r}, "ascend910b3")
    jobs = dict(objective=fake_jobs.slow_ripple, check=fake_jobs.right)
    options = Options(trials=24, patience=99, **jobs)
    with WorkerPool(2) as pool:
        print("pids", *pool.pids, flush=True)
        record = tune_task(task, pool, options, database={database!r})
    print("done", record.trials, record.config, flush=True)
"""


def _journal_trials(path):
    """Completed trials of an optuna journal: [(number, config)]."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    storage = JournalStorage(JournalFileBackend(str(path)))
    found = []
    for study in storage.get_all_studies():
        for t in storage.get_all_trials(study._study_id, deepcopy=False):
            if t.state == TrialState.COMPLETE:
                found.append(
                    (t.number, json.dumps(t.user_attrs["config"], sort_keys=True), t.value)
                )
    return found


def test_kill_9_then_resume_loses_and_repeats_nothing(tmp_path):
    database = tmp_path / "t.jsonl"
    journal = journal_path(database, library.task(MATMUL, "ascend910b3"), FAKE)
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(SCRIPT).format(
            folder=str(Path(__file__).parent), workload=MATMUL, database=str(database)
        )
    )
    before = []
    for kill_after in (4, 12):
        with open(tmp_path / "errors", "wb") as errors:
            process = subprocess.Popen([sys.executable, script], stdout=errors, stderr=errors)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if journal.exists() and len(_journal_lines(journal, '"state":1')) >= kill_after:
                break
            time.sleep(0.02)
        assert process.poll() is None, (tmp_path / "errors").read_text()
        process.send_signal(signal.SIGKILL)
        process.wait()
        with open(journal, "ab") as file:
            file.write(b'{"op_code":6,"torn')  # as if the kill had come in the middle of a write
        trimmed = journal.read_bytes().rpartition(b"\n")[0] + b"\n"
        (tmp_path / "copy").write_bytes(trimmed)
        now = _journal_trials(tmp_path / "copy")
        assert len(now) >= kill_after and set(before) <= set(now)
        before = now
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    after = _journal_trials(journal)
    assert set(before) <= set(after)
    configs = [config for _, config, _ in after]
    assert len(configs) == len(set(configs)) == 24
    # the same proposals as a run that was never killed
    whole = Inline()
    task = library.task(MATMUL, "ascend910b3")
    tune_task(task, whole, replace(FAKE, trials=24, patience=99), database=None)
    assert {json.dumps(dict(c), sort_keys=True) for c in whole.configs} == set(configs)
    assert len(Database(database)) == 1


def _journal_lines(path, text):
    return [
        line
        for line in path.read_text(errors="replace").splitlines()
        if text in line and '"op_code":6' in line
    ]


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_leaves_a_usable_database_and_no_workers(tmp_path):
    database = tmp_path / "t.jsonl"
    journal = journal_path(database, library.task(MATMUL, "ascend910b3"), FAKE)
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(SCRIPT)
        .format(folder=str(Path(__file__).parent), workload=MATMUL, database=str(database))
        .replace("trials=24", "trials=5000")
    )
    process = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while (
        time.monotonic() < deadline
        and len(_journal_lines(journal, '"state":1') if journal.exists() else []) < 6
    ):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in err
    records = list(Database(database))
    assert len(records) == 1 and records[0].verified == "no: interrupted"
