"""Matrix product on cube cores: blocks of C in L0C, chunks of A and B through L1 to L0.

Serves C = A @ B with a final element-wise stage (a conversion) that leaves with the copy out of
L0C.
"""

from typing import Any

from akg_py import te

SERVES = ("matmul", "batch_matmul")


def matmul(s: te.Schedule, config: Any) -> None:
    """Two-level split of k: L1 chunks of step_a (step_b) L0 chunks, the larger step outside."""
    out = s.outputs[0]
    converts = not s[out].op.reduce_axis
    acc = out.op.input_tensors[0] if converts else out
    if s[acc].op.reduce_axis[0].extent == 0:
        return  # zeros, which completion leaves to the vector cores
    if converts:
        s[acc].set_scope("L0C")
    else:  # the product leaves as it is
        acc = s.cache_write(out, "L0C")
    *batch, i, j = s[out].op.axis
    i_outer, i_inner = s[out].split(i, factor=config.tile_m)
    j_outer, j_inner = s[out].split(j, factor=config.tile_n)
    order = (i_outer, j_outer) if config.order == "n" else (j_outer, i_outer)
    s[out].reorder(*batch, *order, i_inner, j_inner)
    block = s[out].fuse(*batch, *order)
    s[out].bind(block, te.thread_axis("blockIdx.x"))
    s[acc].compute_at(s[out], block)
    if config.l0c_copies == 2:
        s[acc].double_buffer()
    _stage_operands(s, acc, config)


def _stage_operands(s: te.Schedule, acc: te.Tensor, config: Any) -> None:
    large, small = max(config.step_a, config.step_b), min(config.step_a, config.step_b)
    rows, columns = s[acc].op.axis[-2:]
    loop, inner = s[acc].split(s[acc].op.reduce_axis[0], factor=config.tile_k)
    outer, loop = s[acc].split(loop, factor=large) if large > 1 else (loop, loop)
    middle, chunk = s[acc].split(loop, factor=small) if 1 < small < large else (outer, loop)
    if small == 1:
        middle = chunk
    loops = list(dict.fromkeys((outer, middle, chunk)))
    s[acc].reorder(*s[acc].op.axis[:-2], *loops, rows, columns, inner)
    A, B = s[acc].op.input_tensors
    for tensor, step, memory in ((A, config.step_a, "L0A"), (B, config.step_b, "L0B")):
        l1 = s.cache_read(tensor, "L1", [acc])
        l0 = s.cache_read(l1, memory, [acc])
        s[l1].compute_at(s[acc], outer if step == large else middle)
        s[l0].compute_at(s[acc], chunk)
        if config.l1_copies == 2:
            s[l1].double_buffer()
        if config.l0_copies == 2:
            s[l0].double_buffer()
