"""Convolutions: zero padding as a stage of its own, float32 accumulation, one final conversion."""

from __future__ import annotations

from typing import Any

from akg_py import dtypes, te
from akg_py.errors import ExpressionError
from akg_py.ops.registry import Attrs, choice, dtype, extent, register
from akg_py.ops.window import LAYOUTS, Image, Padding, Pair, Window, pad, read_image, read_window
from akg_py.te.tensor import Tensor

Declaration = tuple[list[Tensor], list[Tensor]]


def conv2d(
    data: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    layout: str = "NCHW",
    out_dtype: str | None = None,
    name: str = "conv2d",
) -> Tensor:
    """A convolution (as deep learning means it: no flip) of images with `weight`.

    Products and the sum are in the accumulator's dtype (float32 for float16 and bfloat16, int32 for
    int8); a last stage converts to `out_dtype`, the inputs' dtype unless given.

    Args:
        data: [n, c, h, w], or [n, h, w, c] with layout NHWC.
        weight: [oc, c / groups, kh, kw], or [kh, kw, c / groups, oc] with layout NHWC.
        stride, dilation: one integer or (height, width).
        padding: zeros around the image: one integer, (height, width) or (top, left, bottom, right).
        groups: parts that the channels fall into; each output channel sees one of them.

    Raises:
        ExpressionError: shapes don't fit, dtypes differ, or a number is out of its range.
    """
    image = read_image(data, layout)
    _check_weight(data, weight)
    if layout == "NCHW":
        oc, per_group, kh, kw = weight.shape
    else:
        kh, kw, per_group, oc = weight.shape
    if not isinstance(groups, int) or groups < 1 or image.c % groups or oc % groups:
        raise ExpressionError(
            f"groups is {groups!r} for {image.c} channels in and {oc} out",
            hint="a positive integer that divides both",
        )
    if per_group != image.c // groups:
        raise ExpressionError(
            f"{weight!r} reads {per_group} channels of each group, "
            f"{data!r} has {image.c // groups}",
            hint="weight is [oc, c / groups, kh, kw]"
            if layout == "NCHW"
            else "weight is [kh, kw, c / groups, oc]",
        )
    window = read_window((kh, kw), stride, padding, dilation)
    share = oc // groups

    def element(padded: Tensor, acc: str, n: Any, k: Any, h: Any, w: Any) -> Any:
        rc = te.reduce_axis((0, per_group), name="rc")
        ry, rx = te.reduce_axis((0, kh), name="ry"), te.reduce_axis((0, kw), name="rx")
        channel = rc if groups == 1 else k // share * per_group + rc
        pixel = padded[image.order(n, channel, *window.at(h, w, ry, rx))]
        factor = weight[k, rc, ry, rx] if layout == "NCHW" else weight[ry, rx, rc, k]
        return te.sum(pixel.astype(acc) * factor.astype(acc), axis=[rc, ry, rx])

    attrs = {"oc": oc, "groups": groups}
    return _convolve(data, image, window, oc, element, out_dtype, name, attrs)


def depthwise_conv2d(
    data: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    layout: str = "NCHW",
    out_dtype: str | None = None,
    name: str = "depthwise_conv2d",
) -> Tensor:
    """Each channel convolved on its own, with `multiplier` filters; numbers as in `conv2d`.

    Output channel `c * multiplier + m` is channel c of `data` with filter m.

    Args:
        data: [n, c, h, w], or [n, h, w, c] with layout NHWC.
        weight: [c, multiplier, kh, kw], or [kh, kw, c, multiplier] with layout NHWC.

    Raises:
        ExpressionError: shapes don't fit, dtypes differ, or a number is out of its range.
    """
    image = read_image(data, layout)
    _check_weight(data, weight)
    if layout == "NCHW":
        channels, multiplier, kh, kw = weight.shape
    else:
        kh, kw, channels, multiplier = weight.shape
    if channels != image.c:
        raise ExpressionError(
            f"{weight!r} has filters for {channels} channels, {data!r} has {image.c}",
            hint="weight is [c, multiplier, kh, kw]"
            if layout == "NCHW"
            else "weight is [kh, kw, c, multiplier]",
        )
    window = read_window((kh, kw), stride, padding, dilation)

    def element(padded: Tensor, acc: str, n: Any, k: Any, h: Any, w: Any) -> Any:
        ry, rx = te.reduce_axis((0, kh), name="ry"), te.reduce_axis((0, kw), name="rx")
        c, m = (k, 0) if multiplier == 1 else (k // multiplier, k % multiplier)
        pixel = padded[image.order(n, c, *window.at(h, w, ry, rx))]
        factor = weight[c, m, ry, rx] if layout == "NCHW" else weight[ry, rx, c, m]
        return te.sum(pixel.astype(acc) * factor.astype(acc), axis=[ry, rx])

    oc, attrs = image.c * multiplier, {"multiplier": multiplier}
    return _convolve(data, image, window, oc, element, out_dtype, name, attrs)


def _check_weight(data: Tensor, weight: Tensor) -> None:
    if not isinstance(weight, Tensor) or weight.ndim != 4:
        raise ExpressionError(f"{weight!r} is no weight", hint="four axes; see the docstring")
    if data.dtype != weight.dtype:
        raise ExpressionError(
            f"{data.name} is {data.dtype}, {weight.name} is {weight.dtype}",
            hint="convert one with .astype",
        )


def _convolve(
    data: Tensor,
    image: Image,
    window: Window,
    oc: int,
    element: Any,
    out_dtype: str | None,
    name: str,
    attrs: Attrs,
) -> Tensor:
    """The stages of a convolution whose sums `element` forms."""
    acc, out = dtypes.accumulator(data.dtype), out_dtype or data.dtype
    result = Image(image.layout, image.n, oc, *window.count(image))
    padded = pad(data, image, window, 0)
    kh, kw = window.kernel
    known = {"n": image.n, "c": image.c, "h": image.h, "w": image.w, "kh": kh, "kw": kw}
    kinds = {"layout": image.layout, "dtype": data.dtype}
    noted = {} if window.plain is None else {**known, **window.plain, **attrs, **kinds}
    if noted and out != data.dtype:
        noted["out_dtype"] = out
    full: Tensor = te.compute(
        result.shape,
        lambda *i: element(padded, acc, *result.names(i)),
        name=name if acc == out else f"{name}_{acc}",
        attrs=noted,
    )
    if acc == out:
        return full
    narrow: Tensor = te.compute(
        result.shape, lambda *i: full(*i).astype(out), name=name, attrs=noted
    )
    return narrow


def windows(a: Attrs) -> int:
    """How many windows the attributes of an operator describe, over all images."""
    window = read_window((a["kh"], a["kw"]), a["stride"], a["padding"], a["dilation"])
    height, width = window.count(Image(a["layout"], a["n"], a["c"], a["h"], a["w"]))
    return int(a["n"]) * height * width


_IMAGE = [extent("n", 1), extent("c"), extent("h"), extent("w")]
_WINDOW = [
    extent("kh"),
    extent("kw"),
    extent("stride", 1),
    extent("padding", 0),
    extent("dilation", 1),
]
_KINDS = [choice("layout", *LAYOUTS), dtype(), choice("out_dtype", "same", "float32", "int32")]


def _placeholders(
    image: tuple[int, int, int, int], weight: tuple[int, ...], layout: str, dtype: str
) -> tuple[Tensor, Tensor]:
    """data and weight; the weight's extents come as NCHW has them."""
    if layout == "NHWC":
        image = (image[0], image[2], image[3], image[1])
    return te.placeholder(image, dtype, name="data"), te.placeholder(weight, dtype, name="weight")


@register(
    "conv2d",
    [*_IMAGE, extent("oc"), *_WINDOW, extent("groups", 1), *_KINDS],
    about="images with a window of kh x kw, c channels in and oc out",
    flops=lambda a: 2 * windows(a) * a["oc"] * (a["c"] // a["groups"]) * a["kh"] * a["kw"],
    unit="cube",
    exact=True,
)
def _declare_conv2d(
    n: int, c: int, h: int, w: int, oc: int, kh: int, kw: int, stride: int, padding: int,
    dilation: int, groups: int, layout: str, dtype: str, out_dtype: str,
) -> Declaration:  # fmt: skip
    if groups < 1 or c % groups:
        raise ExpressionError(f"groups is {groups}", hint=f"it divides c = {c} and oc = {oc}")
    filters = (oc, c // groups, kh, kw) if layout == "NCHW" else (kh, kw, c // groups, oc)
    data, weight = _placeholders((n, c, h, w), filters, layout, dtype)
    out = None if out_dtype == "same" else out_dtype
    return [data, weight], [conv2d(data, weight, stride, padding, dilation, groups, layout, out)]


@register(
    "depthwise_conv2d",
    [*_IMAGE, extent("multiplier", 1), *_WINDOW, *_KINDS],
    about="each channel of images on its own, with multiplier windows of kh x kw",
    flops=lambda a: 2 * windows(a) * a["c"] * a["multiplier"] * a["kh"] * a["kw"],
    exact=True,
)
def _declare_depthwise(
    n: int, c: int, h: int, w: int, multiplier: int, kh: int, kw: int, stride: int,
    padding: int, dilation: int, layout: str, dtype: str, out_dtype: str,
) -> Declaration:  # fmt: skip
    filters = (c, multiplier, kh, kw) if layout == "NCHW" else (kh, kw, c, multiplier)
    data, weight = _placeholders((n, c, h, w), filters, layout, dtype)
    out = None if out_dtype == "same" else out_dtype
    return [data, weight], [depthwise_conv2d(data, weight, stride, padding, dilation, layout, out)]
