"""Windows that slide over images: what convolutions and pooling have in common.

In go an image tensor and what the user said of strides, padding and layout; out come checked pairs,
the padded image as a stage of its own, and the output's extents.
"""

from __future__ import annotations

from typing import Any

from akg_py import te
from akg_py.errors import ExpressionError
from akg_py.records import dataclass
from akg_py.te.tensor import Tensor

LAYOUTS = ("NCHW", "NHWC")
Pair = int | tuple[int, int]
Padding = int | tuple[int, int] | tuple[int, int, int, int]


@dataclass(frozen=True)
class Image:
    """Extents of a batch of images, and where its axes stand.

    Attributes:
        layout: NCHW or NHWC.
    """

    layout: str
    n: int
    c: int
    h: int
    w: int

    def order(self, n: Any, c: Any, h: Any, w: Any) -> tuple[Any, Any, Any, Any]:
        """The four in the order of the layout."""
        return (n, c, h, w) if self.layout == "NCHW" else (n, h, w, c)

    def names(self, index: tuple[Any, ...]) -> tuple[Any, Any, Any, Any]:
        """n, c, h, w of an index in the order of the layout."""
        n, *others = index
        c, h, w = others if self.layout == "NCHW" else (others[2], others[0], others[1])
        return n, c, h, w

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.order(self.n, self.c, self.h, self.w)


@dataclass(frozen=True)
class Window:
    """A window's extents, steps, spread and the border around the image, each (height, width).

    Attributes:
        padding: rows and columns of border: (top, left, bottom, right).
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]

    def at(self, h: Any, w: Any, r: Any, q: Any) -> tuple[Any, Any]:
        """Position in the padded image of element (r, q) of window (h, w)."""
        return (
            h * self.stride[0] + r * self.dilation[0],
            w * self.stride[1] + q * self.dilation[1],
        )

    def count(self, image: Image) -> tuple[int, int]:
        """How many windows there are along height and width.

        Raises:
            ExpressionError: not one fits.
        """
        top, left, bottom, right = self.padding
        counts = []
        for d, extent in enumerate((image.h + top + bottom, image.w + left + right)):
            reach = (self.kernel[d] - 1) * self.dilation[d] + 1
            if extent < reach:
                raise ExpressionError(
                    f"a window of {reach} doesn't fit an image of {extent} in "
                    f"{'height' if d == 0 else 'width'}, border included",
                    hint="pad more, or take a smaller kernel or dilation",
                )
            counts.append((extent - reach) // self.stride[d] + 1)
        return counts[0], counts[1]

    @property
    def plain(self) -> dict[str, int] | None:
        """Stride, padding and dilation as numbers, where both axes agree."""
        pairs = self.stride, self.padding, self.dilation
        if any(len(set(p)) > 1 for p in pairs):
            return None
        return dict(zip(("stride", "padding", "dilation"), (p[0] for p in pairs), strict=True))


def read_image(data: Tensor, layout: str) -> Image:
    """The extents of `data`.

    Raises:
        ExpressionError: an unknown layout, or not four axes.
    """
    if layout not in LAYOUTS:
        raise ExpressionError(f"layout {layout!r}", hint=f"one of {', '.join(LAYOUTS)}")
    if not isinstance(data, Tensor) or data.ndim != 4:
        raise ExpressionError(f"{data!r} is no batch of images", hint=f"four axes, {layout}")
    n, c, h, w = Image(layout, 0, 0, 0, 0).names(data.shape)
    return Image(layout, n, c, h, w)


def read_window(kernel: Pair, stride: Pair, padding: Padding, dilation: Pair) -> Window:
    """Checked extents of a window.

    Raises:
        ExpressionError: one of them is no pair of integers in its range.
    """
    sides = _integers("padding", padding, (2, 4), 0)
    return Window(
        _pair(_integers("kernel", kernel, (2,), 1)),
        _pair(_integers("stride", stride, (2,), 1)),
        (sides * 2 if len(sides) == 2 else sides),  # type: ignore[arg-type]
        _pair(_integers("dilation", dilation, (2,), 1)),
    )


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    return values[0], values[1]


def _integers(what: str, value: object, counts: tuple[int, ...], least: int) -> tuple[int, ...]:
    items = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    good = all(hasattr(v, "__index__") and not isinstance(v, bool) for v in items)
    if not good or len(items) not in counts or min(v.__index__() for v in items) < least:
        four = " or (top, left, bottom, right)" if 4 in counts else ""
        raise ExpressionError(
            f"{what} is {value!r}",
            hint=f"an integer of {least} or more, or a pair (height, width){four}",
        )
    return tuple(int(v.__index__()) for v in items)


def pad(data: Tensor, image: Image, window: Window, value: Any) -> Tensor:
    """The image with a border of `value` as a stage; `data` itself where there is no border."""
    top, left, bottom, right = window.padding
    if not any(window.padding):
        return data
    shape = image.order(image.n, image.c, image.h + top + bottom, image.w + left + right)

    def element(*index: Any) -> Any:
        n, c, h, w = image.names(index)
        inside = []  # only what can be false: windows of one row have no border above
        inside += [h >= top] if top else []
        inside += [h < image.h + top] if bottom else []
        inside += [w >= left] if left else []
        inside += [w < image.w + left] if right else []
        pixel = data[image.order(n, c, h - top, w - left)]
        return te.if_then_else(te.all(*inside), pixel, te.const(value, data.dtype))

    padded: Tensor = te.compute(shape, element, name=f"{data.name}_pad")
    return padded
