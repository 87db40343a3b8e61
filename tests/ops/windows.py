"""Convolutions and pooling in numpy, from their definition: windows of a padded float64 image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _pairs(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def windows(x: Array, kernel: Any, a: Mapping[str, Any], border: float = 0) -> Array:
    """[n, c, oh, ow, kh, kw] windows of x[n, c, h, w]."""
    stride, dilation = _pairs(a.get("stride", 1)), _pairs(a.get("dilation", 1))
    sides = _pairs(a.get("padding", 0))
    top, left, bottom, right = sides if len(sides) == 4 else sides * 2
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=border)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    every = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    return every[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def _channels_first(x: Array, a: Mapping[str, Any]) -> Array:
    return x.transpose(0, 3, 1, 2) if a.get("layout") == "NHWC" else x


def _back(y: Array, a: Mapping[str, Any]) -> Array:
    return y.transpose(0, 2, 3, 1) if a.get("layout") == "NHWC" else y


def conv2d(x: Array, w: Array, a: Mapping[str, Any]) -> Array:
    x = _channels_first(x, a)
    w = w.transpose(3, 2, 0, 1) if a.get("layout") == "NHWC" else w
    parts = []
    groups = a.get("groups", 1)
    for image, filters in zip(np.split(x, groups, 1), np.split(w, groups, 0), strict=True):
        parts.append(np.einsum("nchwrq,kcrq->nkhw", windows(image, w.shape[2:], a), filters))
    return _back(np.concatenate(parts, 1), a)


def depthwise_conv2d(x: Array, w: Array, a: Mapping[str, Any]) -> Array:
    x = _channels_first(x, a)
    w = w.transpose(2, 3, 0, 1) if a.get("layout") == "NHWC" else w
    y = np.einsum("nchwrq,cmrq->ncmhw", windows(x, w.shape[2:], a), w)
    return _back(y.reshape(y.shape[0], -1, *y.shape[3:]), a)


def max_pool2d(x: Array, a: Mapping[str, Any]) -> Array:
    found = windows(_channels_first(x, a), (a["kh"], a["kw"]), a, -np.inf)
    return _back(found.max((4, 5)), a)


def avg_pool2d(x: Array, a: Mapping[str, Any]) -> Array:
    x, kernel = _channels_first(x, a), (a["kh"], a["kw"])
    total = windows(x, kernel, a).sum((4, 5))
    ignored = a.get("border") == "ignored"
    count = windows(np.ones_like(x), kernel, a).sum((4, 5)) if ignored else kernel[0] * kernel[1]
    return _back(total / count, a)
