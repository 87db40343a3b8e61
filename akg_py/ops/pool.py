"""Pooling: the largest or the mean element of windows that slide over images."""

from __future__ import annotations

from typing import Any

from akg_py import dtypes, te
from akg_py.errors import ExpressionError
from akg_py.ops.conv import windows
from akg_py.ops.registry import Attrs, choice, dtype, extent, register
from akg_py.ops.window import LAYOUTS, Image, Padding, Pair, Window, pad, read_image, read_window
from akg_py.te.tensor import Tensor

Declaration = tuple[list[Tensor], list[Tensor]]


def max_pool2d(
    data: Tensor,
    kernel: Pair,
    stride: Pair | None = None,
    padding: Padding = 0,
    dilation: Pair = 1,
    layout: str = "NCHW",
) -> Tensor:
    """The largest element of each window and channel; NaN where there is one. The border is lowest.

    Args:
        data: [n, c, h, w], or [n, h, w, c] with layout NHWC.
        kernel, dilation: one integer or (height, width).
        stride: the same; the kernel's extents unless given, so that windows don't overlap.
        padding: one integer, (height, width) or (top, left, bottom, right).

    Raises:
        ExpressionError: no window fits, or a number is out of its range.
    """
    image = read_image(data, layout)
    window = read_window(kernel, kernel if stride is None else stride, padding, dilation)
    result = Image(layout, image.n, image.c, *window.count(image))
    padded = pad(data, image, window, dtypes.lowest(data.dtype))

    def element(*index: Any) -> Any:
        n, c, h, w = result.names(index)
        ry, rx = _window_axes(window)
        pixel = padded[image.order(n, c, *window.at(h, w, ry, rx))]
        return te.max(pixel, axis=[ry, rx])

    name = "max_pool2d"
    pooled: Tensor = te.compute(result.shape, element, name=name, attrs=_noted(data, image, window))
    return pooled


def avg_pool2d(
    data: Tensor,
    kernel: Pair,
    stride: Pair | None = None,
    padding: Padding = 0,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window and channel, summed in float32 for 16-bit floats; rounded once.

    Args:
        data, kernel, stride, padding: as for `max_pool2d`.
        count_include_pad: whether the border's zeros count as elements.

    Raises:
        ExpressionError: no window fits, a number is out of its range, or `data` is no float tensor.
    """
    image = read_image(data, layout)
    if not dtypes.is_float(data.dtype):
        raise ExpressionError(f"the mean of {data!r}", hint="convert it with .astype('float32')")
    window = read_window(kernel, kernel if stride is None else stride, padding, 1)
    result = Image(layout, image.n, image.c, *window.count(image))
    padded = pad(data, image, window, 0)
    acc = dtypes.accumulator(data.dtype)

    def total(*index: Any) -> Any:
        n, c, h, w = result.names(index)
        ry, rx = _window_axes(window)
        pixel = padded[image.order(n, c, *window.at(h, w, ry, rx))]
        return te.sum(pixel.astype(acc), axis=[ry, rx])

    sums = te.compute(result.shape, total, name="window_sum")

    def mean(*index: Any) -> Any:
        _, _, h, w = result.names(index)
        if count_include_pad or not any(window.padding):
            return (sums(*index) * (1.0 / (window.kernel[0] * window.kernel[1]))).astype(data.dtype)
        return (sums(*index) / _elements(image, window, h, w).astype(acc)).astype(data.dtype)

    attrs = _noted(data, image, window)
    attrs.pop("dilation", None)
    if attrs:
        attrs["border"] = "counts" if count_include_pad else "ignored"
    pooled: Tensor = te.compute(result.shape, mean, name="avg_pool2d", attrs=attrs)
    return pooled


def _elements(image: Image, window: Window, h: Any, w: Any) -> Any:
    """How many elements of window (h, w) lie in the image."""
    counts = []
    for d, (at, size) in enumerate(((h, image.h), (w, image.w))):
        first = at * window.stride[d] - window.padding[d]
        count = te.minimum(first + window.kernel[d], size) - te.maximum(first, 0)
        counts.append(te.maximum(count, 0))
    return te.maximum(counts[0] * counts[1], 1)  # a window that lies in the border: 0 / 1


def _window_axes(window: Window) -> tuple[Any, Any]:
    kh, kw = window.kernel
    return te.reduce_axis((0, kh), name="ry"), te.reduce_axis((0, kw), name="rx")


def _noted(data: Tensor, image: Image, window: Window) -> Attrs:
    if window.plain is None:
        return {}
    kh, kw = window.kernel
    known = {"n": image.n, "c": image.c, "h": image.h, "w": image.w, "kh": kh, "kw": kw}
    return {**known, **window.plain, "layout": image.layout, "dtype": data.dtype}


_ATTRIBUTES = [
    *(extent("n", 1), extent("c"), extent("h"), extent("w"), extent("kh"), extent("kw")),
    *(extent("stride", 1), extent("padding", 0)),
]
_KINDS = [choice("layout", *LAYOUTS), dtype()]


def _images(n: int, c: int, h: int, w: int, layout: str, dtype: str) -> Tensor:
    shape = Image(layout, n, c, h, w).shape
    return te.placeholder(shape, dtype, name="data")


@register(
    "max_pool2d",
    [*_ATTRIBUTES, extent("dilation", 1), *_KINDS],
    about="the largest element of windows of kh x kw",
    flops=lambda a: windows(a) * a["c"] * a["kh"] * a["kw"],
    exact=True,
)
def _declare_max_pool2d(
    n: int, c: int, h: int, w: int, kh: int, kw: int, stride: int, padding: int, dilation: int,
    layout: str, dtype: str,
) -> Declaration:  # fmt: skip
    data = _images(n, c, h, w, layout, dtype)
    return [data], [max_pool2d(data, (kh, kw), stride, padding, dilation, layout)]


@register(
    "avg_pool2d",
    [*_ATTRIBUTES, *_KINDS, choice("border", "counts", "ignored")],
    about="the mean element of windows of kh x kw",
    flops=lambda a: windows({**a, "dilation": 1}) * a["c"] * (a["kh"] * a["kw"] + 1),
)
def _declare_avg_pool2d(
    n: int, c: int, h: int, w: int, kh: int, kw: int, stride: int, padding: int, layout: str,
    dtype: str, border: str,
) -> Declaration:  # fmt: skip
    data = _images(n, c, h, w, layout, dtype)
    return [data], [avg_pool2d(data, (kh, kw), stride, padding, layout, border == "counts")]
