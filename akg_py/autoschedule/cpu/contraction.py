"""Products on a CPU: register tiles of the result, columns of B packed, blocks for the caches.

In: a stage that sums a product over one axis; out: its loops. The register tile (rows x vectors of
columns) runs innermost around the reduction, so that every load of B serves all rows and every
element of A all columns. B is copied first into panels as wide as a tile, so that the innermost
loops read it in order. A consumer of the product that only works element by element is computed
block by block, while its block of the product is still in the cache.
"""

from __future__ import annotations

import math

from akg_py import dtypes
from akg_py.codegen.target import GROUPS, host
from akg_py.codegen.threads import thread_count
from akg_py.ir.expr import Binary, Cast, Const, Expr, Load, Reduce, loads, substitute
from akg_py.lowering.prepare import is_narrow
from akg_py.records import dataclass
from akg_py.te.schedule import Schedule, Stage
from akg_py.te.stage import StageState
from akg_py.te.tensor import IterVar, Tensor

BLOCK_K_BYTES = 2048  # of a column of B between two visits of a register tile;
GROUPED_K_BYTES = 4096  # with dot instructions, which pass over it several times as fast,
LONG_K_BYTES = 8704  # and with few registers, where a visit is short
BLOCK_ROWS = 144  # rows of A that stay in the second cache;
LONG_ROWS = 528  # with few registers more, as B comes from further off for each block
ROW_RUN_BYTES = 1024  # of a row of B that are read together to be packed
ROW_SHIFT = (64, 16)  # copied rows start 16 elements apart modulo 64, in different cache sets
NEAR_BYTES = 2 << 20  # of A, up to which threads take columns, and all rows of these
BLOCK_BYTES = 256 << 10  # of a product that waits for its consumer
SHARED_BYTES = 4 << 20  # of an A that all threads read
HELD_SHARE = 6  # part of the last cache that B may take to be read once for each row of tiles
PACKED_BYTES = 64 << 10  # B is packed when it is larger, ...
CONVERTED_ROWS, PACKED_ROWS = 32, 16  # ... meets so many rows (converted; with few registers) ...
PACKED_K = 64  # ... and has more rows than the first cache holds at any distance;
SHORT_SUM, SHORT_PACKED_K = 128, 32  # sums that end so soon that storing C takes much of the time
NARROW_BYTES, NARROW_ROWS = 512, 256  # of rows of B that are near each other anyway
SET_BYTES = 4096  # rows that lie a multiple of this apart push each other out of the caches
FAR_SET_BYTES, FAR_BYTES = 8192, 8 << 20  # so do elements so far apart, of an A so large
STREAM_ROWS = 8  # of A, up to which a tile holds them all, and B is passed over once: if it has ...
STREAM_BYTES, STREAM_K = 1 << 20, 8  # ... so many bytes, in whole rows, so many side by side
SHORT_K = 512  # rows of A that follow each other closely enough for high tiles
MANY_ROWS = 48
HIGHEST_TILE = 14  # rows of a tile
MIN_CHAINS = 8  # multiply-adds in flight that hide their latency
FAR_LOAD = 2  # multiply-adds that take as long as a load from the second cache, where B is
GROUPED_ROWS = {4: 3, 2: 7}  # dot instructions need B in groups; packed from this many rows on
LEAST_GROUPED = 8  # elements of a sum that is worth dot instructions
UNEVEN = 1.03  # time of the last thread over that of an even deal, for larger blocks
PARALLEL_FLOPS = 2_000_000  # less isn't worth waking a thread


@dataclass(frozen=True, slots=True)
class Product:
    """C[.., m, .., n] = sum over k of A * B; `b` is the operand that n runs along.

    Attributes:
        rest: further axes of C.
        group: neighbours along k that a dot instruction takes; 1 if there is none.
        k_first: whether neighbours along k do not lie next to each other in A.
        n_first: whether it is those along k that lie next to each other in B.
        lines: an axis in front of n that is one axis with it, in B and in C; or None.
    """

    a: Tensor
    b: Tensor
    m: IterVar
    n: IterVar
    k: IterVar
    rest: tuple[IterVar, ...]
    group: int
    k_first: bool
    n_first: bool = False
    lines: IterVar | None = None

    @property
    def columns(self) -> int:
        """Extent of n, with its lines."""
        return self.n.extent * (self.lines.extent if self.lines is not None else 1)


@dataclass(frozen=True, slots=True)
class ProductTiles:
    """Sizes of a product's loops, in elements.

    Attributes:
        rows, columns: of the register tile.
        block_k: reduced elements that a tile takes at once.
        block_rows: rows of one thread's block; 0 leaves them whole and deals columns.
        block_columns: columns of a block, a multiple of `columns`; 0 is all of them.
        pack: where panels of B are made: "" (nowhere), "first" (all, before the product) or
            "panel" (where they are used: a block of columns, or each by itself).
        along_rows: whether tiles follow each other along rows of C, past the panels of B.
    """

    rows: int
    columns: int
    block_k: int
    block_rows: int
    block_columns: int
    pack: str
    along_rows: bool = False


def match_product(stage: StageState) -> Product | None:
    """The product that a stage at the root computes, if it is one over a single axis."""
    op = stage.op
    sums = [a for a in op.reduce_axis if a.extent != 1] or list(op.reduce_axis[:1])
    if len(op.body) != 1 or len(sums) != 1 or not op.axis or stage.attach is not None:
        return None
    if not all(a.extent for a in (*op.axis, *op.reduce_axis)):
        return None
    e = op.body[0]
    if not isinstance(e, Reduce) or e.combiner.name != "sum" or e.where is not None:
        return None
    product = _strip(e.sources[0])
    if not (isinstance(product, Binary) and product.op == "*"):
        return None
    left, right = _strip(product.a), _strip(product.b)
    if not (isinstance(left, Load) and isinstance(right, Load)) or left.source is right.source:
        return None
    if len(sums) < len(op.reduce_axis):
        plain = left is product.a and right is product.b
        return _match_pixels(stage, left, right, sums[0]) if plain else None
    n, k = op.axis[-1], sums[0]
    if n in left.indices:
        left, right = right, left
    if n in left.indices or any(
        not isinstance(i, IterVar) for i in (*left.indices, *right.indices)
    ):
        return None
    if k not in left.indices or k not in right.indices or n not in right.indices:
        return None
    rows = [a for a in op.axis[:-1] if a in left.indices and a not in right.indices]
    if not rows or rows[-1].extent == 1 or n.extent == 1:  # with one vector it's a plain reduction
        return None
    m = rows[-1]
    rest = tuple(a for a in op.axis if a is not m and a is not n)
    a, b = left.source, right.source
    assert isinstance(a, Tensor) and isinstance(b, Tensor)
    firsts = left.indices[-1] is not k, right.indices[-1] is k
    group = _group(e) if k.extent >= LEAST_GROUPED else 1
    return Product(a, b, m, n, k, rest, group, *firsts)


def _match_pixels(stage: StageState, left: Load, right: Load, k: IterVar) -> Product | None:
    """A convolution of single pixels, channels first: pixels are columns.

    With long sums the tiles of other convolutions are as fast, if channels fill their vectors.
    """
    if len(stage.op.axis) < 3:
        return None
    *others, m, y, x = stage.op.axis
    lanes = host().vector_bytes // dtypes.size_bytes(stage.op.body[0].dtype)
    if k.extent > SHORT_SUM and (host().has_few_registers or m.extent % lanes == 0):
        return None
    only: dict[Expr, Expr] = {a: Const(0, a.dtype) for a in stage.op.reduce_axis if a is not k}
    for weight, image in ((left, right), (right, left)):
        w, i = (tuple(substitute(n, only) for n in load.indices) for load in (weight, image))
        assert isinstance(weight.source, Tensor) and isinstance(image.source, Tensor)
        is_whole = image.source.shape[-2:] == (y.extent, x.extent)
        if is_whole and m.extent > 1 and i == (*others, k, y, x) and w[:2] == (m, k):
            if all(isinstance(n, Const) for n in w[2:]):
                rest = tuple(others)
                return Product(weight.source, image.source, m, x, k, rest, 1, False, lines=y)
    return None


def _group(e: Reduce) -> int:
    """Neighbours along the sum that make a group for a dot instruction."""
    product = e.sources[0]
    assert isinstance(product, (Binary, Cast))
    if isinstance(product, Cast):
        return 1
    sizes = set()
    for side in (product.a, product.b):
        load = side.a if isinstance(side, Cast) else side
        size, total = GROUPS.get(load.dtype, (1, ""))
        if load.dtype == "bfloat16" and not host().has_bf16:
            size = 1  # one conversion in a copy costs less than taking words apart
        fits = isinstance(load, Load) and dtypes.accumulator(e.dtype) == total
        is_wide = side.dtype == total or (side is load and dtypes.is_float(e.dtype))
        sizes.add(size if fits and is_wide else 1)
    return sizes.pop() if len(sizes) == 1 else 1


def _strip(e: Expr) -> Expr:
    while isinstance(e, Cast):
        e = e.a
    return e


def default_tiles(p: Product, is_fused: bool) -> ProductTiles:
    """Tiles for the host's registers and caches."""
    M, N, K = p.m.extent, p.columns, p.k.extent
    lanes, has_few = host().vector_bytes // 4, host().has_few_registers
    groups = GROUPED_ROWS.get(p.group, M + 1) <= M
    rows, width = _register_tile(M, ceildiv(N, lanes), K, groups)
    columns = width * lanes
    is_converted = not groups and _is_converted(p.b)
    size = 4 if is_converted else dtypes.size_bytes(p.b.dtype)
    is_short = has_few and not groups and K <= SHORT_SUM
    is_deep = (SHORT_PACKED_K if is_short else PACKED_K) < K and size * K * N > PACKED_BYTES
    is_far = is_deep and columns < N and p.lines is None  # one panel is as packed
    packs = (
        groups
        or p.n_first
        or ((is_far or is_converted) and _packed_rows(N * size, is_converted) <= M)
    )
    is_held = packs and size * K * N <= host().cache_bytes // HELD_SHARE
    is_stream = min(rows, STREAM_ROWS) >= M and size * K * N >= STREAM_BYTES
    if is_stream and not packs and p.lines is None:
        block_columns = min(_block(N, columns, STREAM_BYTES // (4 * M)), N)
        block_k = next((n for n in (STREAM_K, 7, 9, 6, 10) if K % n == 0), STREAM_K)
        return ProductTiles(rows, columns, block_k, 0, block_columns, pack="")
    is_passed = is_held or p.lines is not None or not (packs or has_few)
    if not groups and M >= MANY_ROWS and is_passed:
        return _tiles_along_rows(p, is_fused, packs)
    is_visited = has_few and not groups and (packs or M < MANY_ROWS)
    k_bytes = GROUPED_K_BYTES if groups else LONG_K_BYTES if is_visited else BLOCK_K_BYTES
    block_k = _even_k(K, k_bytes // size)
    is_near = M * block_k * size < NEAR_BYTES and not (groups or _is_converted(p.a))
    by_columns = (is_near or M < MANY_ROWS * 4) and 4 * columns * thread_count() <= N
    block_rows = 0 if by_columns else _block(M, rows, LONG_ROWS if is_visited else BLOCK_ROWS)
    block_columns = 0
    if by_columns:
        block_columns = _block(N, columns, 4 * columns)
    elif is_fused:
        block_columns = max(BLOCK_BYTES // (4 * max(block_rows, 1)) // columns, 1) * columns
    pack = ("panel" if by_columns or p.rest else "first") if packs else ""
    return ProductTiles(rows, columns, block_k, block_rows, block_columns, pack)


def _tiles_along_rows(p: Product, is_fused: bool, packs: bool) -> ProductTiles:
    """Tiles that keep rows of A in the first cache while panels of B pass by in a stream."""
    M, N, K = p.m.extent, p.columns, p.k.extent
    lanes = host().vector_bytes // 4
    most, wide = tile_cells()
    width = min(ceildiv(N, lanes), wide)
    rows, columns = min(most // width, HIGHEST_TILE), width * lanes
    is_dealt = math.prod(a.extent for a in p.rest) >= 2 * thread_count()
    block_rows = 0 if is_dealt else _block(M, rows, LONG_ROWS)
    block_columns = N
    if not packs:  # lines of B follow each other far apart: they meet again in the second cache
        block_columns = BLOCK_BYTES // (4 * dtypes.size_bytes(p.b.dtype) * K)
    if is_fused and packs and not p.rest:
        block_rows = _block(M, rows, max(BLOCK_BYTES // (4 * N), rows))
    elif is_fused:
        block_columns = min(block_columns, BLOCK_BYTES // (4 * (block_rows or M)))
    block_columns = max(ceildiv(min(block_columns, N), columns), 1) * columns
    if block_columns >= N and block_rows and not p.rest:
        block_columns = 0
    pack = ("panel" if p.rest else "first") if packs else ""
    block_k = _even_k(K, LONG_K_BYTES // 4)
    if packs and not is_fused and not p.rest and _deals_columns(p, columns):
        block_columns = _block(N, columns, 2 * columns)
        return ProductTiles(rows, columns, block_k, 0, block_columns, "panel")
    return ProductTiles(rows, columns, block_k, block_rows, block_columns, pack, along_rows=True)


def _deals_columns(p: Product, columns: int) -> bool:
    """Whether threads take columns, each with panels of its own, of a B that deals out evenly.

    Then none reads what another has just packed; every one reads all of A, which must be near.
    """
    hands, M, N = thread_count(), p.m.extent, p.columns
    dealt = ceildiv(ceildiv(N, columns), hands) * hands * columns
    is_even = dealt <= UNEVEN * N and not host().has_few_registers
    return hands > 1 and is_even and M * p.k.extent * 4 <= SHARED_BYTES


def _packed_rows(row_bytes: int, is_converted: bool) -> int:
    """Rows of A from which on it pays to pack a B whose rows have `row_bytes`."""
    if not host().has_few_registers:
        return CONVERTED_ROWS if is_converted else MANY_ROWS
    if row_bytes <= NARROW_BYTES:
        return NARROW_ROWS
    return 2 if row_bytes % SET_BYTES == 0 else PACKED_ROWS


def _copies_rows(p: Product, tiles: ProductTiles) -> bool:
    """Whether blocks of A are copied too: to convert them once, or to have groups side by side.

    Or because each element of a row of A comes from a line in the same few sets of the caches.
    """
    if tiles.pack and p.group > 1:
        return p.k_first
    apart = dtypes.size_bytes(p.a.dtype) * p.m.extent  # these elements, where k comes first
    is_scattered = p.k_first and apart % FAR_SET_BYTES == 0 and apart * p.k.extent >= FAR_BYTES
    return is_scattered or _is_converted(p.a)


def _is_converted(operand: Tensor) -> bool:
    """Whether elements are converted before they are multiplied."""
    return operand.dtype in ("float16", "bfloat16")


def tile_cells() -> tuple[int, int]:
    """Vectors of a tile that fit the registers, and the most that lie side by side in it."""
    return (12, 2) if host().has_few_registers else (24, 4)


def _register_tile(M: int, vectors: int, K: int, groups: bool) -> tuple[int, int]:
    """Rows and vectors of a tile whose accumulators fit the registers.

    Words of groups are best copied in runs of a whole number of vectors of their elements.
    """
    most, wide = tile_cells()
    if M >= MANY_ROWS:  # a short sum spends its time at the tile's edges: high tiles there
        width = min(vectors, 2 if K <= SHORT_K else wide)
        return min(most // width, HIGHEST_TILE), width

    def work(tile: tuple[int, int]) -> tuple[int, int]:
        rows, width = tile
        steps = max(rows * width, rows + width, FAR_LOAD * width, MIN_CHAINS)
        cost = ceildiv(M, rows) * ceildiv(vectors, width) * steps
        return cost, rows < M if M <= STREAM_ROWS else rows + width

    widths = [w for w in range(min(vectors, most), 0, -1) if not groups or w in (1, 2, 4)]
    return min(((min(M, most // w, HIGHEST_TILE), w) for w in widths), key=work)


def _even_k(size: int, most: int) -> int:
    """Equal parts of a sum, of at most `most` elements, a multiple of every group."""
    part = ceildiv(size, ceildiv(size, most))
    return part if part == size else ceildiv(part, 16) * 16


def _groups_at_once(p: Product, block_k: int) -> int:
    """Groups along k between two visits of a tile: about as many as `block_k` holds, or all.

    A short group is told from whole ones only where the loops around it have no rest.
    """
    groups, most = ceildiv(p.k.extent, p.group), block_k // p.group
    if p.k.extent % p.group:
        return groups
    parts = range(min(groups, most + most // 2), most // 8, -1)
    return next((n for n in parts if groups % n == 0), groups)


def _block(size: int, unit: int, most: int) -> int:
    """The largest block, of `unit`s and at most `most`, with which threads end nearly together."""
    units, hands = ceildiv(size, unit), thread_count()

    def longest(block: int) -> int:  # units of the first hand, which has the most
        return min(ceildiv(ceildiv(units, block), hands) * block, units)

    blocks = range(1, max(most // unit, 1) + 1)
    shortest = min(map(longest, blocks))
    return unit * max(block for block in blocks if longest(block) <= shortest * UNEVEN)


def tile_product(s: Schedule, name: str, tiles: ProductTiles | None = None) -> set[str]:
    """Schedule the product that the stage `name` computes, with the consumer that can join it.

    Args:
        tiles: sizes of the loops; by default those that fit this processor.

    Returns:
        The stages that are scheduled now; none if the stage is no product.
    """
    state = s.state.stage(name)
    p = match_product(state)
    if p is None:
        return set()
    out = epilogue(s, state)
    tiles = tiles or default_tiles(p, out != name)
    stage, target = s[name], s[out]
    same = dict(zip(stage.op.axis, target.op.axis, strict=True))  # axes of the consumer
    outer = [same[a] for a in p.rest]
    inner_m, inner_n = same[p.m], same[p.n]
    if p.lines is not None:
        inner_n = target.fuse(same[p.lines], inner_n)
    if tiles.block_rows and (tiles.block_rows < p.m.extent or out != name):
        block, inner_m = target.split(inner_m, factor=tiles.block_rows)
        outer.append(block)
    if tiles.block_columns:
        block, inner_n = target.split(inner_n, factor=tiles.block_columns)
        outer.append(block)
    target.reorder(*outer, inner_m, inner_n)
    if outer:
        block = target.fuse(*outer) if len(outer) > 1 else outer[0]
        if 2 * math.prod(a.extent for a in stage.op.axis) * p.k.extent >= PARALLEL_FLOPS:
            target.parallel(block)
        if out != name:
            stage.compute_at(target, block)
    if out != name:
        target.vectorize(inner_n)
        inner_m, inner_n = p.m, p.n if p.lines is None else stage.fuse(p.lines, p.n)
    panel, block_k = _inner_loops(s, name, p, tiles, inner_m, inner_n)
    if tiles.pack:
        by_block = tiles.block_columns > 0
        _pack(s, name, p, tiles, (target, block) if by_block else (stage, panel), by_block)
    if _copies_rows(p, tiles):
        _copy_rows(s, name, p, block_k)
    return {name, out}


def _inner_loops(
    s: Schedule, name: str, p: Product, tiles: ProductTiles, m: IterVar, n: IterVar
) -> tuple[IterVar, IterVar]:
    """Tile a block; returns the loops over its panels of columns and over its parts of k."""
    stage = s[name]
    panel, n_inner = stage.split(n, factor=tiles.columns)
    m_outer, m_inner = stage.split(m, factor=tiles.rows)
    order, chunk, element = [panel, m_outer], p.k, []
    group = p.group if tiles.pack else 1
    if group > 1:  # first, so that only the last group of all can be a short one
        chunk, last = stage.split(chunk, factor=group)
        element = [last]
    if tiles.along_rows or (group > 1 and tiles.pack == "first"):
        order.reverse()
    block_k = tiles.block_k if group == 1 else _groups_at_once(p, tiles.block_k)
    if block_k < chunk.extent or _copies_rows(p, tiles):
        k_outer, chunk = stage.split(chunk, factor=block_k)
        order.insert(0, k_outer)
    order += [a for a in stage.op.reduce_axis if a is not p.k]
    stage.reorder(*order, chunk, m_inner, n_inner, *element)
    stage.unroll(m_inner)
    stage.vectorize(n_inner)
    return panel, order[0]


def _copy_rows(s: Schedule, name: str, p: Product, block_k: IterVar) -> None:
    """Copy a block of A, with its rows along k."""
    load = next(x for x in loads(s[name].op.body[0]) if x.source is p.a)
    m, k = load.indices.index(p.m), load.indices.index(p.k)
    rows = s[s.cache_read(p.a, "local", [name])]
    rows.compute_at(s[name], block_k)
    if m < k == len(load.indices) - 1:
        rows.storage_align(rows.op.axis[m], *ROW_SHIFT)
    else:
        others = [d for d in range(len(load.indices)) if d not in (m, k)]
        rows.transform_layout(lambda *x: (*(x[d] for d in others), x[m], x[k]))


def _pack(
    s: Schedule,
    name: str,
    p: Product,
    tiles: ProductTiles,
    place: tuple[Stage, IterVar],
    by_block: bool,
) -> None:
    """Copy B into panels of a tile's columns, in which the rows (or groups of them) follow.

    Args:
        place: the loop that uses the copy, unless all panels are made first.
        by_block: whether that loop uses several panels.
    """
    load = next(x for x in loads(s[name].op.body[0]) if x.source is p.b)
    k, n = load.indices.index(p.k), load.indices.index(p.n)
    first = tiles.pack == "first"
    copy = s[s.cache_read(p.b, "global" if first else "local", [name])]
    axes = copy.op.axis
    others = [a for d, a in enumerate(axes) if d not in (k, n)]
    width, group = tiles.columns, p.group

    def layout(*x: Expr) -> tuple[Expr, ...]:
        outer = tuple(x[d] for d in range(len(x)) if d not in (k, n))
        if group == 1:
            return (*outer, x[n] // width, x[k], x[n] % width)
        return (*outer, x[n] // width, x[k] // group, x[n] % width, x[k] % group)

    copy.transform_layout(layout)
    panels, n_inner = copy.split(axes[n], factor=width)
    rows, inner = axes[k], [n_inner]
    if group > 1:
        rows, k_inner = copy.split(rows, factor=group)
        inner.append(k_inner)
    # rows are read in runs of several panels, which the processor foresees; a panel of a turned B
    # is transposed as one
    by_rows = not p.n_first
    if first:
        run = max(1, ROW_RUN_BYTES // (dtypes.size_bytes(p.b.dtype) * width))
        runs, panels = copy.split(panels, factor=_block(ceildiv(axes[n].extent, width), 1, run))
        copy.reorder(*others, runs, *((rows, panels) if by_rows else (panels, rows)), *inner)
        copy.parallel(copy.fuse(*others, runs) if others else runs)
    else:
        copy.reorder(*others, *((rows, panels) if by_block and by_rows else (panels, rows)), *inner)
        copy.compute_at(*place)
    copy.vectorize(n_inner)


def epilogue(s: Schedule, stage: StageState) -> str:
    """The consumer that only works on elements of the product in place, or the stage itself."""
    at = stage
    while True:
        consumers = s.state.consumers(at)
        if at.is_output or len(consumers) != 1:
            return stage.name
        (user,) = consumers
        if user.op.reduce_axis or len(user.op.axis) != len(stage.op.axis):
            return stage.name
        reads = [x for e in user.op.body for x in loads(e) if x.source in at.outputs]
        if not all(i is a for x in reads for i, a in zip(x.indices, user.op.axis, strict=True)):
            return stage.name
        if not user.is_inline:
            return user.name if user.attach is None and not user.relations else stage.name
        at = user


def ceildiv(a: int, b: int) -> int:
    return -(-a // b)


def cache_narrow_products(s: Schedule) -> None:
    """Give products that round their sum at the end a stage of their own for the sum."""
    for state in s.state.stages:
        if state.attach is None and state.is_output and is_narrow(state) and match_product(state):
            s.cache_write(state.outputs[0], "local")
