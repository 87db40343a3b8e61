"""The time reader: one pass in program order over pipe clocks, flag times and queues, per core.

State is a vector of int64 ticks (offsets S_*). At the END of a marked loop it is compared with a
snapshot taken at iterations 1, 2, 4, 8, ..., as times relative to the scalar clock, clamped at it;
when it recurs, whole periods are skipped. `work` holds operands, registers, state and snapshots.
"""

from __future__ import annotations

from akg_py.ascend.isa import (
    BRCB,
    COPY,
    END,
    FIRST_DEVICE,
    FIRST_INSTRUCTION,
    FIX,
    LOOP,
    ND2NZ,
    SET,
    T_DST,
    T_FAMILY,
    TRAIT_COLUMNS,
)
from akg_py.ascend.readers.cycles import C_HEAD, C_ISSUE, C_LATENCY, COST_COLUMNS, ticks
from akg_py.ascend.readers.scalar import MARK, ROW_BYTES, gather_sizes, reg, step
from akg_py.codegen.memory import called, col, compiled, inlined, ld, ldf, st

PIPES = 7
QUEUE = 32
# state, in words
S_CLOCK, S_AVAIL, S_DONE, S_BUSY, S_PORT, S_ROWS, S_LAST = 0, 1, 9, 16, 24, 25, 26
S_EXECUTED, S_LEFT = 167, 29  # rows really executed (not a sum), flags left over
S_READ, S_WRITTEN, S_RING_AT, S_RINGS = 32, 96, 160, 168
S_FLAGS = S_RINGS + PIPES * QUEUE
SUMS_END = 160  # S_BUSY .. SUMS_END are sums that grow by the same amount each period
# snapshot, in words
N_ITERATION, N_CLOCK, N_FAILURES, N_PAUSE, N_UNIFORM, N_BASE, N_SUMS = range(7)
N_COUNTERS = N_SUMS + SUMS_END - S_BUSY
MAX_COUNTERS = 32
N_STATE = N_COUNTERS + MAX_COUNTERS
MIN_UNIFORM = 8  # shorter loops cost more to compare than to run
MAX_PAUSE = 6  # of a loop that never recurs, one run in 64 is compared
RECURRED, PAUSED = -1, -2  # in place of an iteration: nothing to compare
EMPTY = -(1 << 60)
ISSUE_PART, LATENCY_PART, PARTS = 7, 8, 9
OK, EMPTY_WAIT, FULL_SET, NO_FLAG = range(4)


@inlined
def relative(time, clock):  # type: ignore[no-untyped-def]
    return max(time - clock, 0)


@called
def take(snapshot, s, r, iteration, flags, pipes, counters, counter_count):  # type: ignore[no-untyped-def]
    """Write the state to a snapshot."""
    clock = ld(s)
    st(snapshot, iteration)
    st(snapshot + N_CLOCK * 8, clock)
    for i in range(SUMS_END - S_BUSY):
        st(snapshot + (N_SUMS + i) * 8, ld(s + (S_BUSY + i) * 8))
    for i in range(counter_count):
        st(snapshot + (N_COUNTERS + i) * 8, reg(r, ld(counters + i * 16)))
    at = snapshot + N_STATE * 8
    for i in range(15):
        st(at + i * 8, relative(ld(s + (S_AVAIL + i) * 8), clock))
    at += 15 * 8
    for i in range(flags):
        time = ld(s + (S_FLAGS + i) * 8)
        st(at + i * 8, -1 if time == EMPTY else relative(time, clock))
    at += flags * 8
    for p in range(PIPES):
        if not (pipes >> p) & 1:
            continue
        ring = s + (S_RINGS + p * QUEUE) * 8
        position = ld(s + (S_RING_AT + p) * 8)
        for i in range(QUEUE):
            st(
                at + (p * QUEUE + i) * 8,
                relative(ld(ring + ((position + i) & (QUEUE - 1)) * 8), clock),
            )


@called
def recurs(snapshot, s, r, iteration, modulus, flags, pipes, counters, counter_count):  # type: ignore[no-untyped-def]
    """Whether the state equals the snapshot's."""
    clock = ld(s)
    at = snapshot + N_STATE * 8
    for i in range(15):
        if ld(at + i * 8) != relative(ld(s + (S_AVAIL + i) * 8), clock):
            return False
    if (iteration - ld(snapshot)) % modulus:
        return False
    for i in range(counter_count):
        change = reg(r, ld(counters + i * 16)) - ld(snapshot + (N_COUNTERS + i) * 8)
        period = ld(counters + i * 16 + 8)
        if change and (period == 0 or change % period):
            return False
    at += 15 * 8
    for i in range(flags):
        time = ld(s + (S_FLAGS + i) * 8)
        if ld(at + i * 8) != (-1 if time == EMPTY else relative(time, clock)):
            return False
    at += flags * 8
    for p in range(PIPES):
        if not (pipes >> p) & 1:
            continue
        ring = s + (S_RINGS + p * QUEUE) * 8
        position = ld(s + (S_RING_AT + p) * 8)
        for i in range(QUEUE):
            if ld(at + (p * QUEUE + i) * 8) != relative(
                ld(ring + ((position + i) & (QUEUE - 1)) * 8), clock
            ):
                return False
    return True


@called
def skip(snapshot, s, r, periods, flags, pipes, counters, counter_count):  # type: ignore[no-untyped-def]
    """Move the state `periods` periods ahead."""
    shift = periods * (ld(s) - ld(snapshot + N_CLOCK * 8))
    for i in range(16):
        st(s + i * 8, ld(s + i * 8) + shift)
    for i in range(SUMS_END - S_BUSY):
        now = ld(s + (S_BUSY + i) * 8)
        st(s + (S_BUSY + i) * 8, now + periods * (now - ld(snapshot + (N_SUMS + i) * 8)))
    for i in range(counter_count):
        register = r + ld(counters + i * 16) * 8
        now = ld(register)
        st(register, now + periods * (now - ld(snapshot + (N_COUNTERS + i) * 8)))
    for i in range(PIPES * QUEUE):
        st(s + (S_RINGS + i) * 8, ld(s + (S_RINGS + i) * 8) + shift)
    for i in range(flags):
        time = ld(s + (S_FLAGS + i) * 8)
        if time != EMPTY:
            st(s + (S_FLAGS + i) * 8, time + shift)


@called
def enter(snapshot):  # type: ignore[no-untyped-def]
    """At the LOOP of a marked loop: compare this run, or pause after runs that never recurred."""
    last = ld(snapshot)
    failures = ld(snapshot + N_FAILURES * 8)
    pause = ld(snapshot + N_PAUSE * 8)
    if failures == RECURRED:
        failures = pause = 0
    elif last > 0:
        failures = min(failures + 1, MAX_PAUSE)
        pause = (1 << failures) - 1
    elif last == PAUSED:
        pause -= 1
    st(snapshot + N_FAILURES * 8, failures)
    st(snapshot + N_PAUSE * 8, pause)
    st(snapshot + N_UNIFORM * 8, -1)
    st(snapshot, PAUSED if pause else 0)


@called
def shorten(row, r, s, snapshot, flags, pipes, counters, counter_count):  # type: ignore[no-untyped-def]
    """At the END of a marked loop, before it counts: skip periods, or take a snapshot."""
    counter = r + col(row, 2) * 8
    done = ld(counter) + 1
    uniform = reg(r, col(row, 5))
    taken = ld(snapshot)
    if taken == PAUSED or done >= uniform:
        return
    if uniform != ld(snapshot + N_UNIFORM * 8):  # sizes have changed: nothing before counts
        st(snapshot + N_UNIFORM * 8, uniform)
        st(snapshot + N_BASE * 8, done - 1)
        st(snapshot, 0)
        taken = 0
    age = done - ld(snapshot + N_BASE * 8)
    if taken == RECURRED or age + uniform - done < MIN_UNIFORM:
        return
    if taken and recurs(
        snapshot, s, r, done, reg(r, col(row, 6)), flags, pipes, counters, counter_count
    ):
        period = done - taken
        periods = (uniform - done) // period
        if periods > 0:
            skip(snapshot, s, r, periods, flags, pipes, counters, counter_count)
            st(counter, ld(counter) + periods * period)
        st(snapshot, RECURRED)
        st(snapshot + N_FAILURES * 8, RECURRED)
        return
    if age & (age - 1) == 0:
        take(snapshot, s, r, done, flags, pipes, counters, counter_count)


@inlined
def count_bytes(family, es, x, s):  # type: ignore[no-untyped-def]
    """Add GM traffic of an instruction to the sums."""
    if family == ND2NZ:
        p, q = ld(x + 16), ld(x + 24)
        if p > 0 and q > 0:
            place = s + (S_READ + (ld(x + 8) >> 40)) * 8
            st(place, ld(place) + p * q * es)
    elif family == FIX:
        p, q = ld(x + 16), ld(x + 24)
        if p > 0 and q > 0:
            place = s + (S_WRITTEN + (ld(x) >> 40)) * 8
            st(place, ld(place) + p * q * es)
    elif family == COPY:
        p, q = ld(x + 16), ld(x + 24)
        if p > 0 and q > 0:
            st(s + S_PORT * 8, ld(s + S_PORT * 8) + p * q)
            for i in range(2):
                space = ld(x + i * 8) >> 40
                if space >= 8:
                    place = s + ((S_READ if i else S_WRITTEN) + space) * 8
                    st(place, ld(place) + p * q)


@inlined
def path(attribution, word):  # type: ignore[no-untyped-def]
    return attribution + word * (PARTS * 8)


@called
def copy_path(dst, src):  # type: ignore[no-untyped-def]
    for i in range(PARTS):
        st(dst + i * 8, ld(src + i * 8))


@inlined
def lengthen(place, part, amount):  # type: ignore[no-untyped-def]
    place += part * 8
    st(place, ld(place) + amount)


@inlined
def attribute(  # type: ignore[no-untyped-def]
    attribution, s, pipe, entry, on_path, extra, duration, latency, later
):
    """The critical path of an issued instruction: what held it back, then its own time."""
    avail = path(attribution, S_AVAIL + pipe)
    if on_path:
        copy_path(avail, path(attribution, S_CLOCK))
    lengthen(avail, pipe, extra)
    copy_path(path(attribution, entry), avail)
    lengthen(avail, pipe, duration)
    if later:
        done = path(attribution, S_DONE + pipe)
        copy_path(done, avail)
        lengthen(done, LATENCY_PART, latency)


@compiled
def simulate_core(  # type: ignore[no-untyped-def]
    code,
    end,
    r,
    traits,
    costs,
    flags,
    pipes,
    counters,
    counter_count,
    early,
    s,
    x,
    snapshots,
    snapshot_words,
    attribution,
):
    """Time one core; the state at s starts zeroed with empty flags. Returns (outcome, row, detail).

    attribution: 0, or address of PARTS int64 per state word, zeroed: the cycles of the critical
    path up to that time by pipe, then scalar issue, then latency. They add up to the time.
    """
    row = code
    while row < end:
        op = col(row, 0)
        if op < FIRST_DEVICE:
            if op <= END:
                mark = col(row, MARK)
                st(s + S_LAST * 8, -1)
                if mark and early:
                    snapshot = snapshots + (mark - 1) * snapshot_words * 8
                    if op == LOOP:
                        enter(snapshot)
                    else:
                        shorten(row, r, s, snapshot, flags, pipes, counters, counter_count)
            row = step(op, row, r)
            continue
        pipe = col(row, 1)
        clock = ld(s)
        avail = s + (S_AVAIL + pipe) * 8
        done = s + (S_DONE + pipe) * 8
        if op < FIRST_INSTRUCTION:
            flag = col(row, 2) + reg(r, col(row, 3))
            if flag < 0 or flag >= flags:
                return NO_FLAG, (row - code) // ROW_BYTES, flag
            place = s + (S_FLAGS + flag) * 8
            if op == SET:
                if ld(place) != EMPTY:
                    return FULL_SET, (row - code) // ROW_BYTES, flag
                st(place, max(clock, max(ld(done), ld(avail))))
                if attribution:
                    winner = S_CLOCK
                    if ld(place) != clock:
                        winner = S_DONE + pipe if ld(place) == ld(done) else S_AVAIL + pipe
                    copy_path(path(attribution, S_FLAGS + flag), path(attribution, winner))
            else:
                time = ld(place)
                if time == EMPTY:
                    return EMPTY_WAIT, (row - code) // ROW_BYTES, flag
                st(place, EMPTY)
                target = s if pipe == 0 else avail
                if time > ld(target):
                    st(target, time)
                    if attribution:
                        copy_path(
                            path(attribution, (target - s) >> 3), path(attribution, S_FLAGS + flag)
                        )
            row += ROW_BYTES
            continue
        gather_sizes(row, r, x)
        trait = traits + op * (TRAIT_COLUMNS * 8)
        cost = costs + op * (COST_COLUMNS * 8)
        family = ld(trait + T_FAMILY * 8)
        duration = ticks(trait, x, cost, pipe == 0)
        issue = int(ldf(cost + C_ISSUE * 8))
        clock += issue
        busy = s + (S_BUSY + pipe) * 8
        st(busy, ld(busy) + duration)
        st(s + S_ROWS * 8, ld(s + S_ROWS * 8) + 1)
        st(s + S_EXECUTED * 8, ld(s + S_EXECUTED * 8) + 1)
        if attribution:
            lengthen(path(attribution, S_CLOCK), ISSUE_PART, issue)
        if pipe == 0:
            clock += duration
            st(s, clock)
            st(done, clock)
            if attribution:
                lengthen(path(attribution, S_CLOCK), 0, duration)
                copy_path(path(attribution, S_DONE), path(attribution, S_CLOCK))
        else:
            position = ld(s + (S_RING_AT + pipe) * 8)
            word = S_RINGS + pipe * QUEUE + (position & (QUEUE - 1))
            entry = s + word * 8
            if ld(entry) > clock:
                clock = ld(entry)
                if attribution:
                    copy_path(path(attribution, S_CLOCK), path(attribution, word))
            st(s, clock)
            latency = int(ldf(cost + C_LATENCY * 8))
            early_start, free = clock, ld(avail)
            if family > COPY:
                head = int(ldf(cost + C_HEAD * 8))
                last = ld(s + S_LAST * 8)
                early_start += head
                if family != BRCB and (ld(x + 8) == last or ld(x + 16) == last):
                    free += head + latency
                st(s + S_LAST * 8, ld(x))
            elif family == COPY and ld(x) >> 43:
                latency = int(ldf(costs + C_LATENCY * 8))  # row 0: the latency of writes
            start = max(early_start, free)
            on_path = early_start >= free
            later = start + duration + latency >= ld(done)
            if attribution:
                attribute(
                    attribution,
                    s,
                    pipe,
                    word,
                    on_path,
                    start - (clock if on_path else ld(avail)),
                    duration,
                    latency,
                    later,
                )
            st(entry, start)
            st(s + (S_RING_AT + pipe) * 8, position + 1)
            st(avail, start + duration)
            if later:
                st(done, start + duration + latency)
        count_bytes(family, ld(trait + T_DST * 8), x, s)
        row += ROW_BYTES
    return OK, 0, 0


@compiled
def simulate_cores(  # type: ignore[no-untyped-def]
    code,
    end,
    cores,
    registers,
    core_count,
    traits,
    costs,
    flags,
    pipes,
    counters,
    counter_count,
    early,
    states,
    words,
    work,
    snapshot_words,
):
    """Time all cores of a phase; one zeroed state of `words` each.

    Returns (outcome, core, row, detail).

    work: 16 words of operands, one register vector, snapshots of all marks.
    """
    x = work
    r = work + 128
    snapshots = r + registers * 8
    for core in range(core_count):
        s = states + core * words * 8
        for i in range(registers):
            st(r + i * 8, ld(cores + (core * registers + i) * 8))
        for i in range(flags):
            st(s + (S_FLAGS + i) * 8, EMPTY)
        outcome, row, detail = simulate_core(
            code,
            end,
            r,
            traits,
            costs,
            flags,
            pipes,
            counters,
            counter_count,
            early,
            s,
            x,
            snapshots,
            snapshot_words,
            0,
        )
        if outcome:
            return outcome, core, row, detail
        leftover = 0
        for i in range(flags):
            if ld(s + (S_FLAGS + i) * 8) != EMPTY:
                leftover += 1
        st(s + S_LEFT * 8, leftover)
    return OK, 0, 0, 0
