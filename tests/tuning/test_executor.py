"""Worker pools: one bad job loses itself only."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from akg_py.errors import CapacityError, InternalError
from akg_py.tuning.executor import WorkerError, WorkerPool

sys.path.insert(0, str(Path(__file__).parent))
import worker_jobs as jobs


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(1, timeout_seconds=20) as p:
        yield p


def test_results_come_back(pool):
    assert [f.result(30) for f in [pool.submit(jobs.double, n) for n in range(5)]] == [
        0,
        2,
        4,
        6,
        8,
    ]


def test_crash_loses_one_job_and_names_the_signal(pool):
    bad, good = pool.submit(jobs.crash), pool.submit(jobs.double, 4)
    with pytest.raises(WorkerError, match="SIGSEGV"):
        bad.result(30)
    assert good.result(30) == 8


def test_exit_is_reported(pool):
    with pytest.raises(WorkerError, match="code 7"):
        pool.submit(jobs.leave, 7).result(30)


def test_akg_error_keeps_kind_place_and_hint(pool):
    with pytest.raises(CapacityError) as info:
        pool.submit(jobs.fail, "too big").result(30)
    assert (info.value.message, info.value.where, info.value.hint) == (
        "too big",
        "tile.py:3",
        "smaller",
    )


def test_other_errors_and_noise(pool):
    with pytest.raises(InternalError, match="ZeroDivisionError: oh"):
        pool.submit(jobs.stumble).result(30)
    with pytest.raises(InternalError, match="not JSON serializable"):
        pool.submit(jobs.unserialisable).result(30)
    assert pool.submit(jobs.double, 1).result(30) == 2


def test_timeout_counts_work_only():
    with WorkerPool(1, timeout_seconds=0.5) as p:
        slow, next_one = p.submit(jobs.hang, 30), p.submit(jobs.double, 3)
        with pytest.raises(WorkerError, match=r"within 0\.5 s"):
            slow.result(60)
        assert next_one.result(60) == 6  # its wait and the new worker's start are not charged to it


def test_lambda_is_refused(pool):
    with pytest.raises(InternalError, match="imported"):
        pool.submit(lambda: 1)


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (
        not Path(f"/proc/{pid}/stat").exists()
        or Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    )


def test_workers_end_when_the_parent_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import worker_jobs
        from akg_py.tuning.executor import WorkerPool
        pool = WorkerPool(2)
        assert pool.submit(worker_jobs.double, 1).result(60) == 2
        futures = [pool.submit(worker_jobs.hang, 600) for _ in range(2)]
        while len(pool.pids) < 2: time.sleep(0.05)
        time.sleep(0.5)
        print(*pool.pids, flush=True)
        time.sleep(600)
        """)
    )
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    pids = [int(p) for p in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while any(map(_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(_alive, pids))
