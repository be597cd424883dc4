"""The sets of gradient shapes that the benchmarks reduce."""

from __future__ import annotations

from collections.abc import Callable

Shape = tuple[int, ...]


def resnet50() -> list[Shape]:
    """ResNet-50 for 1,000 classes: 161 trainable tensors, 25.6 million values."""
    shapes: list[Shape] = []

    def convolution(kernel: int, inputs: int, outputs: int) -> None:
        shapes.extend(
            [(kernel, kernel, inputs, outputs), (outputs,), (outputs,)]
        )  # with batch norm

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
    """BERT-base: 199 trainable tensors, 109.5 million values."""
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


WORKLOADS: dict[str, Callable[[], list[Shape]]] = {
    "1 float": lambda: [(1,)],
    "500 x 1 KiB": lambda: [(256,)] * 500,
    "ResNet-50": resnet50,
    "BERT-base": bert_base,
    "64 MiB": lambda: [(16 * 1024 * 1024,)],
}
