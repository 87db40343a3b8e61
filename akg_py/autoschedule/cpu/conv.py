"""Convolutions on the CPU: tiles of output elements whose sums stay in registers.

In: an untouched schedule with a stage that sums products of a sliding window and a weight. Out: the
same in tiles. Where many output channels read the same input, channels run in lanes: the weight is
packed so that those of a block lie together, a step of the sum loads them once and multiplies them
by one pixel after the other, each broadcast from the padded image, so strides and dilation cost
nothing. Depthwise, lanes run along the innermost axis of the image. The finished tile goes through
a small buffer to the output, on the way through what is left to compute of each element.
"""

from __future__ import annotations

import math

from akg_py import dtypes
from akg_py.autoschedule.cpu.contraction import match_product
from akg_py.autoschedule.cpu.windows import Convolution, find_convolution
from akg_py.codegen.target import host
from akg_py.ir.expr import loads
from akg_py.records import dataclass
from akg_py.te.schedule import Schedule
from akg_py.te.stage import StageState
from akg_py.te.tensor import IterVar, Tensor

BLOCK_BYTES = 256 << 10  # of the padded image behind the rows that are computed together
PART_BYTES = 16 << 10  # the same where a task takes few channels
WAY_BYTES, WAYS = 4096, 8  # of the first cache
RUN_COST = 12  # products that take as long as storing a run of a channel's pixels
EMBEDDED_BYTES = 64  # width of the vectors whose instructions broadcast an operand from memory
TASKS = 4  # blocks of rows from which on they are dealt to threads; else channels are dealt too
SHARED = 8  # output channels of one input from which on they fill lanes


@dataclass(frozen=True, slots=True)
class ConvolutionTiles:
    """Sizes of a convolution's loops.

    Attributes:
        channels, rows, columns: of a register tile.
        block_rows: output rows, whole tiles, that are computed for all channels before the next.
        deal: what threads take: blocks of "rows", or blocks of "channels" too.
    """

    channels: int
    rows: int
    columns: int
    block_rows: int
    deal: str


def schedule_convolutions(s: Schedule) -> None:
    """Place convolutions of an untouched schedule with what is computed of their elements.

    Those that are products of matrices are left to `contraction`.
    """
    for name in [stage.name for stage in s.stages]:
        if match_product(s.state.stage(name)) is None:
            tile_convolution(s, name)


def tile_convolution(s: Schedule, name: str, tiles: ConvolutionTiles | None = None) -> None:
    """Schedule the stage `name`, if it is a convolution, with the stages around it.

    Args:
        tiles: the host's registers and caches decide unless given. Depthwise convolutions have
            fixed ones.
    """
    c = find_convolution(s.state.stage(name))
    if c is None or 0 in [a.extent for a in (*c.stage.op.axis, *c.stage.op.reduce_axis)]:
        return
    if c.group >= SHARED:
        _Channels(s, c).place(tiles)
    elif c.channel_is_last:
        _LastChannels(s, c).place()
    else:
        _Columns(s, c).place()


class _Tiles:
    """A convolution in a schedule: `sums` is the stage that adds up, `root` the one that stores.

    Attributes:
        others, rows, columns, channel: axes of `root`; `rows` and `others` may be empty.
    """

    def __init__(self, s: Schedule, c: Convolution) -> None:
        self.s, self.c = s, c
        name = c.stage.name
        self.root = _tail(s, name)
        self.sums = name
        if self.root == name:
            self.sums = s.cache_write(c.stage.outputs[0], "local").op.name
        axes = dict(zip(c.stage.op.axis, s[self.root].op.axis, strict=True))
        self.channel = axes[c.channel]
        self.columns = axes[c.pixels[-1]]
        self.rows = [axes[a] for a in c.pixels[:-1]]
        self.others = [axes[a] for a in c.others]
        self.height = self.rows[0].extent if self.rows else 1
        self.width = self.columns.extent
        acc = dtypes.accumulator(c.stage.op.body[0].dtype)
        processor = host()
        self.lanes = max(1, processor.vector_bytes // dtypes.size_bytes(acc))
        self.registers = processor.registers

    def split_rows(
        self, block: int, tile: int
    ) -> tuple[list[IterVar], list[IterVar], list[IterVar]]:
        """Loops over blocks of rows, tiles in a block and rows in a tile; empty without rows."""
        if not self.rows:
            return [], [], []
        out = self.s[self.root]
        outer, inner = out.split(self.rows[0], factor=block)
        middle, inner = out.split(inner, factor=tile)
        return [outer], [middle], [inner]

    def row_block(self, bytes_: int, tile: int, channels: int | None = None) -> int:
        """Output rows, whole tiles, whose part of the image takes about `bytes_`.

        Args:
            channels: of a block; all unless given.
        """
        image = self.c.data.source
        assert isinstance(image, Tensor)
        whole = math.prod(image.shape) * dtypes.size_bytes(image.dtype)
        row = whole // math.prod(a.extent for a in (*self.others, *self.rows))
        if channels is not None:
            row = max(1, row * channels // max(self.channel.extent, channels))
        blocks = max(1, -(-self.height * row // bytes_))
        return -(-self.height // blocks // tile) * tile if blocks > 1 else self.height

    def place_sums(self, at: IterVar) -> None:
        """The sums of a tile where it is stored, in a buffer of its size."""
        self.s[self.sums].compute_at(self.root, at)

    def place_image(self, at: IterVar | None) -> None:
        """The padded image inside the loop `at` of the root, or whole before it."""
        s = self.s
        producer = s.state.producer(self.c.data.source)  # type: ignore[arg-type]
        if producer is None or producer.is_output or producer.op.reduce_axis or producer.attach:
            return
        if len(producer.outputs) > 1 or len(s.state.consumers(producer)) > 1:
            return
        if producer.relations or producer.marks:  # it has loops of its own already
            return
        stage = s[producer.name]
        stage.vectorize(producer.op.axis[-1])
        pixel = producer.op.axis[-1].extent * dtypes.size_bytes(producer.outputs[0].dtype)
        if self.c.channel_is_last and pixel % 512 == 0:  # into different sets of the first cache
            stage.storage_align(producer.op.axis[-2], 32, 16)
        if at is not None:
            stage.compute_at(self.root, at)
        elif len(producer.op.axis) > 2:
            stage.parallel(stage.fuse(*producer.op.axis[:-2]))


class _Channels(_Tiles):
    """Output channels in lanes, pixels broadcast."""

    def place(self, tiles: ConvolutionTiles | None) -> None:
        c, out = self.c, self.s[self.root]
        t = tiles or self._tiles()
        by_rows = t.deal == "rows"
        channels, channel = [], self.channel
        if c.group < channel.extent:
            part, channel = out.split(channel, factor=c.group)
            channels.append(part)
        outer, lane = out.split(channel, factor=t.channels)
        channels.append(outer)
        column, tile_column = out.split(self.columns, factor=t.columns)
        task, row, tile_rows = self.split_rows(t.block_rows, t.rows)
        pixels = [*tile_rows, tile_column]
        tile = [*pixels, lane] if self.c.channel_is_last else [lane, *pixels]
        out.reorder(*self.others, *task, *channels, *row, column, *tile)
        if by_rows:
            at = out.fuse(*self.others, *task)
        else:
            at = out.fuse(*self.others, *task, *channels)
        out.parallel(at)
        if self.c.channel_is_last:
            out.vectorize(lane)
        self.place_sums(column)
        self._order_sums()
        once = not by_rows and math.prod(a.extent for a in (*self.others, *task)) == 1
        self._pack_weight(t.channels, at if once else None)
        self.place_image(at if by_rows else None)

    def _tiles(self) -> ConvolutionTiles:
        """Tiles with the shortest sums, blocks of rows for the second cache."""
        sets = WAY_BYTES // math.gcd(WAY_BYTES, self._pitch())  # of the first cache, with pixels
        pixels = min(self.registers - 3, WAYS * sets - 1)
        heights = [n for n in range(1, self.registers) if self.height % n == 0]
        found = [
            (rows, columns, v)
            for v in ((2, 3, 4) if self.c.channel_is_last and self.c.group > self.lanes else (1, 2))
            for rows in heights
            for columns in range(1, self.width + 1)
            if v <= 2 or self.c.group % (v * self.lanes) == 0
            if rows * columns <= min(pixels, (self.registers - 2 - v) // v)
        ]

        terms = math.prod(a.extent for a in self.c.stage.op.reduce_axis)

        def piece(pixels: int, deep: int, rows: int) -> int:
            """Time of a tile: half of its products' cycles, by the term of the sum."""
            if host().vector_bytes == EMBEDDED_BYTES:
                return max(deep * pixels, 6) + deep
            runs = (
                0 if self.c.channel_is_last else (pixels // rows // 4 + pixels // rows % 4) * rows
            )
            stored = RUN_COST * runs * deep * self.lanes
            return max(deep * pixels, deep + pixels, 8) + stored // terms

        def cycles(tile: tuple[int, int, int]) -> int:
            rows, columns, v = tile
            vectors = -(-self.c.group // self.lanes)
            return sum(
                n * m * piece(rows * width, deep, rows)
                for width, n in _parts(self.width, columns).items()
                for deep, m in _parts(vectors, v).items()
            ) * (self.height // rows)

        rows, columns, vectors = min(found, key=cycles)
        padded = self.s.state.producer(self.c.data.source) is not None  # type: ignore[arg-type]
        block = self.row_block(BLOCK_BYTES if padded else 4 * BLOCK_BYTES, rows)
        tasks = math.prod(a.extent for a in self.others) * -(-self.height // block)
        deal = "rows" if tasks >= TASKS else "channels"
        return ConvolutionTiles(vectors * self.lanes, rows, columns, block, deal)

    def _pitch(self) -> int:
        """Bytes between pixels that a row of a tile reads of an image as it is."""
        source = self.c.data.source
        assert isinstance(source, Tensor)
        if not self.c.channel_is_last or self.s.state.producer(source) is not None:
            return 1
        step = self.c.column_step * source.shape[-1]
        return step * dtypes.size_bytes(source.dtype)

    def _order_sums(self) -> None:
        """The sum's loops outside, then the tile's pixels, then its channels in lanes."""
        stage = self.s[self.sums]
        at = self.c.stage.op.axis.index(self.c.channel)
        pixels = [a for n, a in enumerate(stage.op.axis) if n != at]
        lane = stage.op.axis[at]
        stage.reorder(*stage.op.reduce_axis, *pixels, lane)
        stage.vectorize(lane)
        if not self.c.channel_is_last:
            names = [f"d{n}" for n in range(len(stage.op.axis))]
            order = [n for m, n in enumerate(names) if m != at] + [names[at]]
            stage.transform_layout(f"{', '.join(names)} -> {', '.join(order)}")

    def _pack_weight(self, block: int, at: IterVar | None) -> None:
        """The channels of a block together: for each task its own, or all before the sums."""
        c = self.c
        assert isinstance(c.weight.source, Tensor)
        packed = self.s.cache_read(c.weight.source, "global", [self.sums])
        stage = self.s[packed]
        position = next(n for n, i in enumerate(c.weight.indices) if i is c.channel)
        names = [f"d{n}" for n in range(packed.ndim)]
        channel, rest = names[position], [n for m, n in enumerate(names) if m != position]
        digits = [f"{channel} // {block}", *rest, f"{channel} % {block}"]
        stage.transform_layout(f"{', '.join(names)} -> {', '.join(digits)}")
        steps = [a for n, a in enumerate(stage.op.axis) if n != position]
        outer, lane = stage.split(stage.op.axis[position], factor=block)
        stage.reorder(outer, *steps, lane)
        if position == packed.ndim - 1:
            stage.vectorize(lane)
        else:
            stage.fuse(*steps)
        if at is None:
            stage.parallel(outer)
        else:
            stage.compute_at(self.root, at)


def _parts(extent: int, factor: int) -> dict[int, int]:
    """Sizes of the pieces of an axis in chunks of `factor`, with how often they occur."""
    pieces = {factor: extent // factor}
    if extent % factor:
        pieces[extent % factor] = 1
    return pieces


class _LastChannels(_Tiles):
    """Depthwise with channels innermost: they run in lanes, a few pixels to a tile."""

    def place(self) -> None:
        s, out = self.s, self.s[self.root]
        columns = -(-self.width // -(-self.width // 8))
        row_block = self.row_block(2 * PART_BYTES, 1, 2 * self.lanes)
        column, tile_column = out.split(self.columns, factor=columns)
        outer, lane = out.split(self.channel, factor=2 * self.lanes)
        task, row, tile_rows = self.split_rows(row_block, 1)
        out.reorder(*self.others, *task, outer, *row, column, *tile_rows, tile_column, lane)
        at = out.fuse(*self.others, *task, outer)
        out.parallel(at)
        out.unroll(tile_column)
        out.vectorize(lane)
        self.place_sums(column)
        stage = s[self.sums]
        *steps, step = stage.op.reduce_axis
        stage.reorder(*steps, step, *stage.op.axis)
        stage.unroll(step)
        for a in stage.op.axis[:-1]:
            stage.unroll(a)
        stage.vectorize(stage.op.axis[-1])
        self.place_image(at)


class _Columns(_Tiles):
    """Few output channels to an input, columns innermost: these run in lanes, rows make a tile."""

    def place(self) -> None:
        s, out = self.s, self.s[self.root]
        whole = self.width % self.lanes == 0
        columns = self.lanes if whole else min(self.width, 2 * self.lanes)
        most = 4 if whole else max(1, self.registers * 3 // 4 // -(-columns // self.lanes))
        rows = max(n for n in range(1, most + 1) if self.height % n == 0)
        row_block = self.row_block(PART_BYTES, rows, 1)
        column, tile_column = out.split(self.columns, factor=columns)
        task, row, tile_rows = self.split_rows(row_block, rows)
        out.reorder(*self.others, self.channel, *task, *row, column, *tile_rows, tile_column)
        at = out.fuse(*self.others, self.channel)
        out.parallel(at)
        for a in tile_rows:
            out.unroll(a)
        out.vectorize(tile_column)
        self.place_sums(column)
        stage = s[self.sums]
        stage.reorder(*stage.op.reduce_axis, *stage.op.axis)
        *_, step = stage.op.reduce_axis
        stage.unroll(step)
        for a in stage.op.axis[:-1]:
            stage.unroll(a)
        if whole and len(stage.op.reduce_axis) > 1:
            stage.unroll(stage.op.reduce_axis[-2])
        stage.vectorize(stage.op.axis[-1])
        self.place_image(task[0] if task and row_block < self.height else at)


def _tail(s: Schedule, name: str) -> str:
    """The last of the element-wise stages behind `name`; those between are inlined."""
    chain = [name]
    while True:
        stage = s.state.stage(chain[-1])
        consumers = s.state.consumers(stage)
        if stage.is_output or len(consumers) != 1 or not _follows(consumers[0], stage):
            break
        chain.append(consumers[0].name)
    for between in chain[1:-1]:
        s[between].compute_inline()
    return chain[-1]


def _follows(consumer: StageState, producer: StageState) -> bool:
    """Whether every element of `consumer` reads the same element of `producer` and no other."""
    op = consumer.op
    own = [x for e in op.body for x in loads(e) if x.source in producer.outputs]
    return (
        not op.reduce_axis
        and len(consumer.outputs) == 1
        and consumer.attach is None
        and not consumer.relations
        and not consumer.marks
        and op.shape == producer.op.shape
        and all(i is a for x in own for i, a in zip(x.indices, op.axis, strict=True))
    )
