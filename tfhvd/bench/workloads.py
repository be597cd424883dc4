"""The workloads: sizes in bytes, and the sets of gradients of real models. No TensorFlow."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable

Shape = tuple[int, ...]

DEFAULT_SIZES = tuple(4 * 16**i for i in range(7))  # 4 B to 64 MiB
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclasses.dataclass(frozen=True)
class TensorSet:
    """Tensors of float32 that a step reduces, each with a separate call.

    Attributes:
        name: the name in the report.
        shapes: the shapes of the tensors, in the order of their reductions.
    """

    name: str
    shapes: tuple[Shape, ...]

    @property
    def elements(self) -> int:
        """The total number of values."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def bytes(self) -> int:
        """The total number of bytes."""
        return 4 * self.elements


def resnet50() -> list[Shape]:
    """Returns ResNet-50 for 1,000 classes: 161 trainable tensors, 25.6 million values."""
    shapes: list[Shape] = []

    def convolution(kernel: int, inputs: int, outputs: int) -> None:
        # The kernel, and the scale and offset of the batch normalization.
        shapes.extend([(kernel, kernel, inputs, outputs), (outputs,), (outputs,)])

    convolution(7, 3, 64)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolution(1, inputs, width)
            convolution(3, width, width)
            convolution(1, width, 4 * width)
            if block == 0:
                convolution(1, inputs, 4 * width)
            inputs = 4 * width
    shapes.extend([(2048, 1000), (1000,)])
    return shapes


def bert_base() -> list[Shape]:
    """Returns BERT-base: 199 trainable tensors, 109.5 million values."""
    width, feed = 768, 3072
    shapes: list[Shape] = [(30522, width), (512, width), (2, width), (width,), (width,)]
    for _ in range(12):
        for _ in range(4):  # query, key, value, output
            shapes.extend([(width, width), (width,)])
        shapes.extend([(width,), (width,)])
        shapes.extend([(width, feed), (feed,), (feed, width), (width,)])
        shapes.extend([(width,), (width,)])
    shapes.extend([(width, width), (width,)])
    return shapes


def tiny() -> list[Shape]:
    """Returns a small convolutional network for 28 x 28 images: 8 tensors, 2.5 million values."""
    return [(3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (9216, 270), (270,), (270, 10), (10,)]


MODELS: dict[str, Callable[[], list[Shape]]] = {
    "resnet50": resnet50,
    "bert": bert_base,
    "tiny": tiny,
}


def model(name: str) -> TensorSet:
    """Returns the gradients of one of MODELS.

    Example:
        >>> model("resnet50").elements
        25557032
    """
    return TensorSet(name, tuple(MODELS[name]()))


def parse_size(text: str) -> int:
    """Returns a number of bytes from a text: 4, 64K, 1M, 2GiB; units are powers of 1024.

    Raises:
        ValueError: if the text is malformed.

    Example:
        >>> parse_size("64K")
        65536
    """
    found = re.fullmatch(r"(\d+)([KMG]?)(i?B)?", text, re.IGNORECASE)
    if not found or int(found[1]) == 0:
        raise ValueError(f"{text!r}; write bytes, 1 or more, as in 4, 64K, 16M, 1G")
    return int(found[1]) * _UNITS[found[2].upper()]


def parse_tensors(text: str) -> TensorSet:
    """Returns a set of equal tensors from a text like 500x1K: count, x, bytes of each.

    Raises:
        ValueError: if the text is malformed, or the bytes are no whole number of float32.

    Example:
        >>> parse_tensors("500x1K").shapes[0]
        (256,)
    """
    count, cross, size = text.partition("x")
    if not cross or not count.isdigit() or int(count) == 0:
        raise ValueError(f"{text!r}; write COUNTxSIZE, as in 500x1K or 1x64M")
    each = parse_size(size)
    if each % 4:
        raise ValueError(f"{text!r}; write a size that is a multiple of 4, the bytes of a float32")
    name = f"{count} x {format_bytes(each)}"
    return TensorSet(name, ((each // 4,),) * int(count))


def format_bytes(count: int) -> str:
    """Returns bytes for people: in powers of 1024 if they are whole, else in MB or KB.

    Example:
        >>> format_bytes(65536), format_bytes(102228128)
        ('64 KiB', '102.2 MB')
    """
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor} {unit}"
    if count < 10_000:
        return f"{count} B"
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} KB"
