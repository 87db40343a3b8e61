"""conv2d 3x3 and 1x1, stride 1 and 2, and depthwise, NCHW fp32, beside torch (oneDNN)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from akg_py import ops, te
from tests.benchmarks.cpu.harness import ONE_THREAD, Array, Bar, Case, ours
from tests.benchmarks.cpu.peers import from_torch, tensor, torch

TITLE = "conv2d beside torch"
BARS = (
    Bar("torch", 1.05, "geomean"),
    Bar(ONE_THREAD, 1.75, threads=2, least_ms=1.0),
)


@dataclass(frozen=True)
class Conv:
    """A convolution, padded to keep the size at stride 1; depthwise when `channels_out` is 0."""

    channels: int
    size: int
    channels_out: int
    kernel: int
    stride: int = 1
    batch: int = 1

    @property
    def label(self) -> str:
        kind = "depthwise " if not self.channels_out else ""
        to = f"->{self.channels_out}" if self.channels_out else ""
        window = f"{self.kernel}x{self.kernel}"
        return f"{kind}{window} {self.channels}{to}, {self.size}^2, stride {self.stride}"


CONVS = (
    Conv(64, 56, 64, 3),
    Conv(128, 28, 128, 3),
    Conv(256, 14, 256, 3),
    Conv(64, 56, 128, 3, stride=2),
    Conv(256, 14, 512, 3, stride=2),
    Conv(64, 56, 256, 1),
    Conv(256, 56, 64, 1),
    Conv(256, 56, 512, 1, stride=2),
    Conv(96, 56, 0, 3),
    Conv(96, 56, 0, 3, stride=2),
)


def declare(what: Conv) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """Input, weights and output."""
    window = (what.kernel, what.kernel)
    X = te.placeholder((what.batch, what.channels, what.size, what.size), name="X")
    if what.channels_out:
        W = te.placeholder((what.channels_out, what.channels, *window), name="W")
        return X, W, ops.conv2d(X, W, what.stride, what.kernel // 2)
    W = te.placeholder((what.channels, 1, *window), name="W")
    return X, W, ops.depthwise_conv2d(X, W, what.stride, what.kernel // 2)


def by_numpy(what: Conv, x: Array, w: Array, shape: tuple[int, ...]) -> Array:
    """The convolution as a sum of products, one per tap."""
    pad, s, out = what.kernel // 2, what.stride, shape[-1]
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    total = np.zeros(shape, np.float32)
    reach = (out - 1) * s + 1
    for y in range(what.kernel):
        for z in range(what.kernel):
            part = padded[:, :, y : y + reach : s, z : z + reach : s]
            if what.channels_out:
                total += np.einsum("bcyx,kc->bkyx", part, w[:, :, y, z], optimize=True)
            else:
                total += part * w[:, 0, y, z, None, None]
    return total


def conv(what: Conv) -> Case:
    X, W, Y = declare(what)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(X.shape, np.float32), rng.standard_normal(W.shape, np.float32)
    fan = what.kernel**2 * (what.channels if what.channels_out else 1)
    peers = []
    if torch is not None:
        groups = 1 if what.channels_out else what.channels
        tx, tw = tensor(x), tensor(w)
        options = {"stride": what.stride, "padding": what.kernel // 2, "groups": groups}
        lx, lw = (t.contiguous(memory_format=torch.channels_last) for t in (tx, tw))
        peers = [
            *from_torch("torch", lambda: torch.conv2d(tx, tw, **options)),
            *from_torch("torch channels_last", lambda: torch.conv2d(lx, lw, **options)),
        ]
    return Case(
        what.label,
        [ours([X, W], [Y], [x, w]), *peers],
        [by_numpy(what, x, w, Y.shape)],
        atol=4e-6 * fan,
        work=2e-9 * math.prod(Y.shape) * fan,
        unit="GF/s",
    )


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    for what in CONVS:
        yield what.label, lambda what=what: conv(what)
