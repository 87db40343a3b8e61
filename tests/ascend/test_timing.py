"""The time model: early stop equals the full run, laws of time, attribution, traffic, launch."""

from __future__ import annotations

import numpy as np
import pytest
from programs import Flags, drain, elementwise, free, layer_norm, matmul, set_flag, wait_flag

from akg_py import build
from akg_py.ascend import instructions as ins
from akg_py.ascend import isa, timing
from akg_py.ascend.device import load_device
from akg_py.ascend.program import GlobalTensor, Phase, Program, Repeat, address
from akg_py.ascend.table import _steps_to_last
from akg_py.ir.expr import Var, const, evaluate_index, minimum
from akg_py.library import task

DEVICE = "ascend910b3"
FIELDS = ("cycles", "busy", "rows", "read", "written", "port_bytes")


def random_pipeline(rng: np.random.Generator) -> Program:
    """Loads, vector work and stores in random nests with tails, slots, orders, odd loops."""
    tensor = GlobalTensor("t", "float32", (1 << 20,), "output", 0)
    f = Flags()
    copies, outs = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    full, free_in = f.pair("MTE2", "V", copies), f.pair("V", "MTE2", copies)
    ready, free_out = f.pair("V", "MTE3", outs), f.pair("MTE3", "V", outs)
    cores = int(rng.integers(1, 4))
    core = Var("core", lo=0, hi=cores - 1)
    total, tile = int(rng.integers(1, 3000)), int(rng.integers(1, 65))
    per = -(-total // tile) // cores + 1
    i, j, k = Var("i", lo=0, hi=per), Var("j", lo=0, hi=40), Var("k", lo=0, hi=40)
    seen, done = Var("seen", lo=0), Var("done", lo=0)
    trips, inner = int(rng.integers(0, 40)), int(rng.integers(0, 12))
    rows = (
        minimum(tile, total - (core * per + i) * tile)
        if rng.integers(2)
        else minimum(tile, total - i * tile)
    )
    odd = rng.integers(3)
    lanes = (
        minimum(64, 700 - j * 64)
        if odd == 0
        else const(int(rng.integers(1, 65)))
        if odd == 1
        else (j % 3) * 8 + 1
    )
    s, o = seen % copies, done % outs
    load = (
        wait_flag(free_in, s),
        ins.copy(
            address("UB", s * 4096),
            address(tensor, i * 64 + j * 4),
            1 if rng.integers(2) else rows,
            64,
            64,
            256,
            "MTE2",
        ),
        set_flag(full, s),
        wait_flag(full, s),
        *(
            ins.vector(
                str(rng.choice(["VADD", "VMUL", "VEXP"])),
                "float32",
                address("UB", 16384),
                address("UB", s * 4096 + 256 * n),
                address("UB", 16384),
                lanes=lanes if rng.integers(2) else 64,
                repeats=int(rng.integers(1, 20)),
            )
            for n in range(rng.integers(1, 4))
        ),
        Repeat(
            k,
            const(inner),
            (
                ins.vector(
                    "VADDS",
                    "float32",
                    address("UB", 20480 + k * 256),
                    address("UB", 16384),
                    0,
                    lanes=64,
                ),
            ),
        ),
        set_flag(free_in, s),
    )
    store = (
        wait_flag(free_out, o),
        ins.vector(
            "VCOPY",
            "float32",
            address("UB", 32768 + o * 4096),
            address("UB", 16384),
            lanes=64,
            repeats=rows if rng.integers(2) else 4,
        ),
        set_flag(ready, o),
        wait_flag(ready, o),
        ins.copy(
            address(tensor, 65536 + i * 256), address("UB", 32768 + o * 4096), 1, 256, 0, 0, "MTE3"
        ),
        set_flag(free_out, o),
    )
    limit = minimum(per, (total + tile - 1) // tile - core * per) if rng.integers(2) else const(per)
    nest = Repeat(i, limit, (Repeat(j, const(trips), load, (seen,)), *store), (done,))
    body = (*free(free_in, free_out), nest, *drain(free_in, free_out))
    return Program(
        "random",
        load_device(DEVICE),
        (tensor,),
        (Phase("random", "aiv", core, cores, body, tuple(f.all)),),
    )


def random_matmul(rng: np.random.Generator) -> Program:
    bm, bn, kl0 = (int(rng.choice([16, 32, 48, 64, 128])) for _ in range(3))
    kl0 = min(kl0, 64)
    kl1 = kl0 * int(rng.integers(1, 4))
    M, N, K = (int(rng.integers(1, 1500)) for _ in range(3))
    return matmul(
        M,
        N,
        K,
        tile=(bm, bn, kl1, kl0),
        cores=int(rng.integers(1, 21)),
        copies=int(rng.integers(1, 3)),
        l0c_copies=int(rng.integers(1, 3)),
    )


def assert_early_stop_is_exact(program: Program) -> tuple[int, int]:
    early, whole = timing.time_phase(program, 0), timing.time_phase(program, 0, early_stop=False)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(early, name), getattr(whole, name), err_msg=name)
    return int(early.executed.sum()), int(whole.rows.sum())


@pytest.mark.parametrize("seed", range(40))
def test_early_stop_equals_the_full_run(seed):
    rng = np.random.default_rng(seed)
    assert_early_stop_is_exact(random_pipeline(rng))
    assert_early_stop_is_exact(random_matmul(rng))


@pytest.mark.slow
def test_early_stop_equals_the_full_run_500():
    shortened = 0
    for seed in range(1000, 1250):
        rng = np.random.default_rng(seed)
        for program in (random_pipeline(rng), random_matmul(rng)):
            executed, rows = assert_early_stop_is_exact(program)
            shortened += executed < rows
    assert shortened > 100


def test_early_stop_shortens_what_repeats():
    for program, factor in (
        (matmul(4096, 4096, 4096), 10),
        (layer_norm(65536, 1024), 10),
        (elementwise(1 << 26), 5),
    ):
        executed, rows = assert_early_stop_is_exact(program)
        assert executed * factor < rows, program.name


@pytest.mark.parametrize(
    "tile_m, tile_n, order", [(80, 48, "n"), (80, 48, "m"), (32, 224, "n"), (32, 112, "n")]
)
def test_early_stop_goes_on_after_tails(tile_m: int, tile_n: int, order: str) -> None:
    job = task("matmul:m=4096,n=4096,k=2048,dtype=float16", DEVICE)
    config = {**job.default, "tile_m": tile_m, "tile_n": tile_n, "tile_k": 64, "order": order}
    kernel = build(job.apply(config), job.workload.args, target=DEVICE)
    executed, rows = assert_early_stop_is_exact(kernel.program)
    assert executed * 3 < rows


def test_steps_to_the_last_remainder() -> None:
    i = Var("i", lo=0, hi=1000)
    for n in range(2, 30):
        for step in range(1, 2 * n):
            remainder = (i * step + 3) % n
            steps = _steps_to_last(remainder, step, n)
            for at in range(0, 60, 7):
                wanted = next((d for d in range(n) if ((at + d) * step + 3) % n == n - 1), None)
                found = evaluate_index(steps, {i: at})
                assert found == wanted if wanted is not None else found > 1000, (n, step, at)


PROGRAMS = [
    matmul(500, 300, 200, tile=(64, 64, 64, 32)),
    matmul(256, 512, 1000, copies=1),
    layer_norm(100, 300),
    elementwise(50_000),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_laws(program):
    """At least each pipe's busy time; the critical path adds up; shorter work is never slower."""
    phase = program.phases[0]
    times = timing.time_phase(program, 0)
    assert (times.cycles[:, None] >= times.busy - 1e-9).all()
    for core in range(phase.cores):
        parts = timing.critical_path(program, 0, core)
        assert sum(parts.values()) == pytest.approx(times.cycles[core])
    costs = timing.cost_table(program.device, phase.kind, phase.cores)
    used = {n.op for n in _instructions(phase.body)} - {"COPY"} | {"COPY"} & {
        n.op for n in _instructions(phase.body)
    }
    for op in used:
        for column in range(4):
            cheaper = costs.copy()
            cheaper[isa.INSTRUCTIONS[op].number, column] *= 0.5
            faster = timing.time_phase(program, 0, costs=cheaper)
            assert (faster.cycles <= times.cycles).all(), (op, column)


def _instructions(body):
    from akg_py.ascend.program import Instruction, walk

    return [n for n in walk(body) if isinstance(n, Instruction)]


def test_double_buffering_never_hurts():
    for shape in ((512, 512, 512), (1000, 300, 777)):
        one, two = (
            timing.simulate(matmul(*shape, tile=(128, 128, 128, 64), copies=c)).seconds
            for c in (1, 2)
        )
        assert two <= one


def test_traffic():
    cost = timing.simulate(matmul(512, 512, 256, tile=(128, 256, 128, 64)))
    assert cost.bytes_read == {"A": 512 * 256 * 2 * 2, "B": 512 * 256 * 2 * 4, "C": 0}
    assert cost.bytes_written == {"A": 0, "B": 0, "C": 512 * 512 * 2}
    assert cost.hbm_bytes == 0
    cold = timing.simulate(matmul(512, 512, 256, tile=(128, 256, 128, 64)), l2="cold")
    assert cold.hbm_bytes == 2 * 512 * 256 * 2
    assert cold.seconds >= cost.seconds
    norm = timing.simulate(layer_norm(64, 128))
    assert norm.bytes_read["x"] == norm.bytes_written["y"] == 64 * 128 * 4


def test_tensors_beyond_l2_reach_hbm():
    """Streams miss once; a matmul above L2 misses more than its operands, less than its traffic."""
    stream = timing.simulate(elementwise(1 << 25))
    assert stream.hbm_bytes == 3 * (4 << 25)
    assert stream.phases[0].bound == "HBM"
    large = timing.simulate(matmul(4096, 4096, 32768))
    operands = 2 * 4096 * 32768 * 2
    assert operands < large.hbm_bytes < sum(large.bytes_read.values())
    for l2 in ("warm", "cold"):
        assert timing.simulate(matmul(4096, 4096, 32768), l2=l2).hbm_bytes == large.hbm_bytes


def test_breakdown():
    cost = timing.simulate(matmul(1024, 1024, 1024), attribute=True)
    assert cost.seconds == pytest.approx(cost.launch_seconds + sum(p.seconds for p in cost.phases))
    assert cost.interval[0] < cost.seconds < cost.interval[1]
    text = cost.explain()
    for word in ("launch", "critical path", "bound by", "interval: +-9%", "DSM"):
        assert word in text
    assert sum(cost.critical.values()) == pytest.approx(cost.cycles)


def test_launch_follows_the_studies():
    """Vector kernels: 0.51 + 0.79 + 0.02 a input on one block; matmul 5 us + 0.035 a core."""
    one = timing.launch_seconds(elementwise(64))
    assert one == pytest.approx((0.51 + 0.79 + 0.04) * 1e-6)
    assert timing.launch_seconds(matmul(1024, 1024, 64)) == pytest.approx((5 + 0.035 * 20) * 1e-6)


def test_phases_meet_at_a_priced_barrier():
    p = elementwise(64)
    twice = Program("twice", p.device, p.tensors, p.phases * 2)
    cost = timing.simulate(twice)
    assert cost.barrier_seconds == pytest.approx(2.95e-6)
    assert cost.bytes_read["A"] == 2 * 256


def test_scalar_fallback_is_priced_per_element():
    def program(pipe, lanes, trips):
        n = Var("n", lo=0, hi=trips)
        body = (
            Repeat(
                n,
                const(trips),
                (
                    ins.vector(
                        "VADDS",
                        "float32",
                        address("UB", n * 4),
                        address("UB", n * 4),
                        0,
                        lanes=lanes,
                        pipe=pipe,
                    ),
                ),
            ),
        )
        return Program(
            "s", load_device(DEVICE), (), (Phase("s", "aiv", Var("core", lo=0, hi=0), 1, body),)
        )

    scalar = timing.time_phase(program("S", 1, 1000), 0)
    assert scalar.cycles[0] == 1000 * (12 + 4)
    assert scalar.busy[0, 0] == 12_000
    vector = timing.time_phase(program("V", 64, 16), 0)
    assert vector.cycles[0] < scalar.cycles[0] / 20


def test_deadlock_is_an_error_with_the_instruction():
    from akg_py.ascend.program import Flag
    from akg_py.errors import InternalError

    f = Flag("V", "MTE3", 0, 1)
    body = (wait_flag(f, 0, "user.py:3"),)
    program = Program(
        "d", load_device(DEVICE), (), (Phase("d", "aiv", Var("core", lo=0, hi=0), 1, body, (f,)),)
    )
    with pytest.raises(InternalError, match=r"deadlock.*wait_flag.*user.py:3"):
        timing.simulate(program)
