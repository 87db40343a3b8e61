"""The thread pool as LLVM IR: native workers that never hold the GIL.

In: nothing; out: the text of a module that `threads` compiles and loads once per process. A kernel
calls `akg_py_run(team, body, context, n, workspace, bytes)`; a team is `{ptr run, i64 hands}`.

One region runs at a time; a caller that finds the pool busy runs its range alone. A region deals
0 .. n-1 to its hands as equal contiguous shares. A hand takes its own share piece by piece, then
what is left of the others', so that memory is walked in order and nobody waits for a thread that
was held up. Workers join and leave through `gate`, one word: the number of the region, the free
seats, the workers inside. A worker may use the region's fields only while it is counted inside, and
the leader changes them only when nobody is. Who waits spins for a moment and then sleeps on a
condition: the sleeper counts itself before it looks at the gate again, the waker changes the gate
before it reads the count, so one of them sees the other.
"""

from __future__ import annotations

import platform
import signal

MAX_HANDS = 256
_SPINS = 400  # a few microseconds
_PIECES = 8  # per share
_PAUSES = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
}
_PAUSES |= {"AMD64": _PAUSES["x86_64"], "arm64": _PAUSES["aarch64"]}

_TEXT = """
; gate: region << 32 | free seats << 16 | workers inside
@gate = internal global i64 0, align 128
@busy = internal global i64 0, align 128
@next = internal global [MAX_HANDS x [16 x i64]] zeroinitializer, align 128
; {body, context, n, workspace, bytes of a hand's workspace, hands, share, piece}
@region = internal global {ptr, ptr, i64, ptr, i64, i64, i64, i64} zeroinitializer, align 128
@sleepers = internal global i64 0, align 128
@waiting = internal global i64 0, align 128
@started = internal global i64 0, align 128
@mutex = internal global [128 x i8] zeroinitializer, align 128
@wake = internal global [128 x i8] zeroinitializer, align 128
@done = internal global [128 x i8] zeroinitializer, align 128
@akg_py_hands = global i64 1, align 128

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
DECLARE_PAUSE

; A pool without workers: at the start, and in the child of a fork.
define void @akg_py_reset() {
  store i64 0, ptr @gate
  store i64 0, ptr @busy
  store i64 0, ptr @sleepers
  store i64 0, ptr @waiting
  store i64 0, ptr @started
  call void @llvm.memset.p0.i64(ptr @mutex, i8 0, i64 128, i1 false)
  call void @llvm.memset.p0.i64(ptr @wake, i8 0, i64 128, i1 false)
  call void @llvm.memset.p0.i64(ptr @done, i8 0, i64 128, i1 false)
  call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  call i32 @pthread_cond_init(ptr @wake, ptr null)
  call i32 @pthread_cond_init(ptr @done, ptr null)
  ret void
}

; One hand's part of the region: its own share first, then the others'.
define internal void @work(i64 %seat) noinline {
entry:
  %r = load {ptr, ptr, i64, ptr, i64, i64, i64, i64}, ptr @region
  %body = extractvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r, 0
  %context = extractvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r, 1
  %n = extractvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r, 2
  %workspaces = extractvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r, 3
  %bytes = extractvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r, 4
  %hands = extractvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r, 5
  %share = extractvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r, 6
  %piece = extractvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r, 7
  %offset = mul i64 %seat, %bytes
  %workspace = getelementptr i8, ptr %workspaces, i64 %offset
  br label %shares
shares:
  %k = phi i64 [ 0, %entry ], [ %k.next, %empty ]
  %sum = add i64 %seat, %k
  %over = icmp sge i64 %sum, %hands
  %less = sub i64 %sum, %hands
  %owner = select i1 %over, i64 %less, i64 %sum
  %next = getelementptr [16 x i64], ptr @next, i64 %owner
  %after = add i64 %owner, 1
  %bound = mul i64 %after, %share
  %end = call i64 @llvm.smin.i64(i64 %bound, i64 %n)
  br label %look
look:
  %seen = load atomic i64, ptr %next monotonic, align 8
  %left = icmp slt i64 %seen, %end
  br i1 %left, label %take, label %empty
take:
  %begin = atomicrmw add ptr %next, i64 %piece monotonic
  %mine = icmp slt i64 %begin, %end
  br i1 %mine, label %do, label %empty
do:
  %full = add i64 %begin, %piece
  %stop = call i64 @llvm.smin.i64(i64 %full, i64 %end)
  call void %body(ptr %context, i64 %begin, i64 %stop, ptr %workspace)
  br label %look
empty:
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %hands
  br i1 %more, label %shares, label %finished
finished:
  ret void
}

; A worker.
define internal ptr @serve(ptr %unused) noinline {
entry:
  %signals = alloca [128 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %signals, i8 -1, i64 128, i1 false)
  call i32 @pthread_sigmask(i32 SIG_SETMASK, ptr %signals, ptr null)
  br label %look
look:
  %tries = phi i32 [ 0, %entry ], [ %more, %spin ], [ 0, %retry ], [ 0, %leave ], [ 0, %woken ]
  %g = load atomic i64, ptr @gate seq_cst, align 8
  %seats = and i64 %g, 4294901760
  %open = icmp ne i64 %seats, 0
  br i1 %open, label %join, label %closed
join:
  %joined = sub i64 %g, 65535
  %pair = cmpxchg ptr @gate, i64 %g, i64 %joined seq_cst seq_cst
  %success = extractvalue {i64, i1} %pair, 1
  br i1 %success, label %inside, label %retry
retry:
  br label %look
inside:
  %hands.at = getelementptr {ptr, ptr, i64, ptr, i64, i64, i64, i64}, ptr @region, i64 0, i32 5
  %hands = load i64, ptr %hands.at
  %free = lshr i64 %seats, 16
  %seat = sub i64 %hands, %free
  call void @work(i64 %seat)
  %before = atomicrmw sub ptr @gate, i64 1 seq_cst
  %low = and i64 %before, 4294967295
  %last = icmp eq i64 %low, 1
  br i1 %last, label %ask, label %leave
ask:
  %awaited = load atomic i64, ptr @waiting seq_cst, align 8
  %asleep = icmp ne i64 %awaited, 0
  br i1 %asleep, label %tell, label %leave
tell:
  call i32 @pthread_mutex_lock(ptr @mutex)
  call i32 @pthread_mutex_unlock(ptr @mutex)
  call i32 @pthread_cond_signal(ptr @done)
  br label %leave
leave:
  br label %look
closed:
  %more = add i32 %tries, 1
  %tired = icmp sgt i32 %more, SPINS
  br i1 %tired, label %sleep, label %spin
spin:
  PAUSE
  br label %look
sleep:
  call i32 @pthread_mutex_lock(ptr @mutex)
  atomicrmw add ptr @sleepers, i64 1 seq_cst
  br label %check
check:
  %g2 = load atomic i64, ptr @gate seq_cst, align 8
  %seats2 = and i64 %g2, 4294901760
  %open2 = icmp ne i64 %seats2, 0
  br i1 %open2, label %woken, label %wait
wait:
  call i32 @pthread_cond_wait(ptr @wake, ptr @mutex)
  br label %check
woken:
  atomicrmw sub ptr @sleepers, i64 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %look
}

; Start workers up to `wanted`; a system that refuses leaves the region with fewer.
define internal void @start(i64 %wanted) noinline {
entry:
  %handle = alloca i64
  br label %look
look:
  %have = load i64, ptr @started
  %few = icmp slt i64 %have, %wanted
  br i1 %few, label %create, label %finished
create:
  %failed = call i32 @pthread_create(ptr %handle, ptr null, ptr @serve, ptr null)
  %fine = icmp eq i32 %failed, 0
  br i1 %fine, label %count, label %finished
count:
  %thread = load i64, ptr %handle
  call i32 @pthread_detach(i64 %thread)
  %now = add i64 %have, 1
  store i64 %now, ptr @started
  br label %look
finished:
  ret void
}

; Run body(context, begin, end, workspace) over pieces of 0 .. n-1; returns when all are done.
define void @akg_py_run(
    ptr %team, ptr %body, ptr %context, i64 %n, ptr %workspace, i64 %bytes) {
entry:
  %hands.at = getelementptr {ptr, i64}, ptr %team, i64 0, i32 1
  %most = load i64, ptr %hands.at
  %wanted = call i64 @llvm.smin.i64(i64 %most, i64 %n)
  %several = icmp sgt i64 %wanted, 1
  br i1 %several, label %try, label %alone
try:
  %pair = cmpxchg ptr @busy, i64 0, i64 1 acquire monotonic
  %free = extractvalue {i64, i1} %pair, 1
  br i1 %free, label %lead, label %alone
alone:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %whole, label %finished
whole:
  call void %body(ptr %context, i64 0, i64 %n, ptr %workspace)
  br label %finished
lead:
  %wanted.less = sub i64 %wanted, 1
  %up = add i64 %n, %wanted.less
  %share = sdiv i64 %up, %wanted
  %share.less = sub i64 %share, 1
  %up2 = add i64 %n, %share.less
  %hands = sdiv i64 %up2, %share
  %up3 = add i64 %share, PIECES_LESS
  %piece = sdiv i64 %up3, PIECES
  %workers = sub i64 %hands, 1
  call void @start(i64 %workers)
  %r0 = insertvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} undef, ptr %body, 0
  %r1 = insertvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r0, ptr %context, 1
  %r2 = insertvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r1, i64 %n, 2
  %r3 = insertvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r2, ptr %workspace, 3
  %r4 = insertvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r3, i64 %bytes, 4
  %r5 = insertvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r4, i64 %hands, 5
  %r6 = insertvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r5, i64 %share, 6
  %r7 = insertvalue {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r6, i64 %piece, 7
  store {ptr, ptr, i64, ptr, i64, i64, i64, i64} %r7, ptr @region
  br label %deal
deal:
  %h = phi i64 [ 0, %lead ], [ %h.next, %deal ]
  %next = getelementptr [16 x i64], ptr @next, i64 %h
  %begin = mul i64 %h, %share
  store atomic i64 %begin, ptr %next monotonic, align 8
  %h.next = add i64 %h, 1
  %dealing = icmp slt i64 %h.next, %hands
  br i1 %dealing, label %deal, label %publish
publish:
  %g = load atomic i64, ptr @gate monotonic, align 8
  %number = lshr i64 %g, 32
  %number.next = add i64 %number, 1
  %high = shl i64 %number.next, 32
  %seats = shl i64 %workers, 16
  %opened = or i64 %high, %seats
  atomicrmw xchg ptr @gate, i64 %opened seq_cst
  %asleep = load atomic i64, ptr @sleepers seq_cst, align 8
  %any = icmp sgt i64 %asleep, 0
  br i1 %any, label %rouse, label %own
rouse:
  call i32 @pthread_mutex_lock(ptr @mutex)
  call i32 @pthread_mutex_unlock(ptr @mutex)
  %all = icmp sle i64 %asleep, %workers
  br i1 %all, label %everyone, label %each
everyone:
  call i32 @pthread_cond_broadcast(ptr @wake)
  br label %own
each:
  %s = phi i64 [ 0, %rouse ], [ %s.next, %each ]
  call i32 @pthread_cond_signal(ptr @wake)
  %s.next = add i64 %s, 1
  %signalling = icmp slt i64 %s.next, %workers
  br i1 %signalling, label %each, label %own
own:
  call void @work(i64 0)
  atomicrmw and ptr @gate, i64 -4294901761 seq_cst
  br label %look
look:
  %tries = phi i32 [ 0, %own ], [ %tries.next, %spin ]
  %g1 = load atomic i64, ptr @gate acquire, align 8
  %inside1 = and i64 %g1, 65535
  %left1 = icmp eq i64 %inside1, 0
  br i1 %left1, label %close, label %again
again:
  %tries.next = add i32 %tries, 1
  %tired = icmp sgt i32 %tries.next, SPINS
  br i1 %tired, label %sleep, label %spin
spin:
  PAUSE
  br label %look
sleep:
  call i32 @pthread_mutex_lock(ptr @mutex)
  atomicrmw xchg ptr @waiting, i64 1 seq_cst
  br label %check
check:
  %g2 = load atomic i64, ptr @gate seq_cst, align 8
  %inside2 = and i64 %g2, 65535
  %left2 = icmp eq i64 %inside2, 0
  br i1 %left2, label %awake, label %wait
wait:
  call i32 @pthread_cond_wait(ptr @done, ptr @mutex)
  br label %check
awake:
  store atomic i64 0, ptr @waiting monotonic, align 8
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %close
close:
  store atomic i64 0, ptr @busy release, align 8
  br label %finished
finished:
  ret void
}
"""


def runtime_text() -> str:
    """The module's text for this processor and system."""
    pause, declare = _PAUSES.get(platform.machine(), ("", ""))
    values = {
        "DECLARE_PAUSE": declare,
        "PAUSE": pause,
        "SIG_SETMASK": str(int(signal.SIG_SETMASK)),
        "MAX_HANDS": str(MAX_HANDS),
        "PIECES_LESS": str(_PIECES - 1),
        "PIECES": str(_PIECES),
        "SPINS": str(_SPINS),
    }
    text = _TEXT
    for name, value in values.items():
        text = text.replace(name, value)
    return text
