"""How much of a training step's communication is hidden behind its computation.

    tfhvdrun -np 2 python tests/perf/overlap.py [--layers 20] [--width 512] [--batch 128]

A step of a network of so many equal layers, compiled with XLA and not, with one thread of each rank
to compute: alone (every rank trains its own), together, and the communication without the rest.
The three take turns; what a step takes longer together than alone is *exposed*. For the compiled
step it prints as well where XLA's schedule places what begins each gradient's collective: how many
of the step's matrix products come before it.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable

import tensorflow as tf

import tfhvd as hvd

RATE = 1e-3


def positions(hlo: str) -> tuple[list[int], list[int], int]:
    """Reads a schedule of XLA's.

    Returns:
        How many matrix products come before each start and before each done; how many there are.
    """
    entry = hlo[hlo.index("ENTRY ") :]
    starts: list[int] = []
    dones: list[int] = []
    products = 0
    for line in entry.splitlines():
        if re.search(r'\bdot\(|custom_call_target="__onednn\$matmul"|calls=%?\S*dot', line):
            products += 1
        elif 'custom_call_target="tfhvd_start"' in line:
            starts.append(products)
        elif 'custom_call_target="tfhvd_done"' in line:
            dones.append(products)
    return starts, dones, products


class Network:
    """Layers that are all alike, and the steps that train them."""

    def __init__(self, layers: int, width: int, batch: int) -> None:
        self.weights = [
            tf.Variable(tf.random.stateless_normal([width, width], [layer, 0]) / width**0.5)
            for layer in range(layers)
        ]
        self.x = tf.random.stateless_normal([batch, width], [hvd.rank(), 1])

    def step(self, together: bool) -> tf.Tensor:
        """Updates the weights by the gradients of one batch."""
        plain = tf.GradientTape()
        with hvd.DistributedGradientTape(plain) if together else plain as tape:
            y = self.x
            for weight in self.weights:
                y = tf.nn.relu(y @ weight)
            loss = tf.reduce_mean(y * y)
        for weight, gradient in zip(self.weights, tape.gradient(loss, self.weights)):
            weight.assign_sub(RATE * gradient)
        return loss

    def communicate(self) -> list[tf.Tensor]:
        """Reduces as many bytes, all at once and with nothing beside."""
        return hvd.grouped_allreduce([tf.identity(w) for w in self.weights], name="alone")


def seconds_of(run: Callable[[], object]) -> float:
    """What the slowest rank takes."""
    hvd.barrier()
    began = time.perf_counter()
    run()
    took = tf.constant(time.perf_counter() - began, tf.float64)
    return float(hvd.allreduce(took, op=hvd.Max, name="took"))


def measure(network: Network, compiled: bool, rounds: int) -> str:
    """Times the three in turn; gives a row of the table."""

    def function(body: Callable[[], object]) -> Callable[[], object]:
        return tf.function(body, jit_compile=compiled, autograph=False)

    runs = {
        "alone": function(lambda: network.step(together=False)),
        "together": function(lambda: network.step(together=True)),
        "communication": function(network.communicate),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 3):
        for name, run in runs.items():
            seconds = seconds_of(run)
            if number >= 3:
                times[name].append(1e3 * seconds)
    # Each round's three are neighbours in time: their differences see the same machine.
    exposed = [t - a for t, a in zip(times["together"], times["alone"])]
    cells = [statistics.median(values) for values in (*times.values(), exposed)]
    title = "compiled" if compiled else "uncompiled"
    return f"| {title} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    network = Network(arguments.layers, arguments.width, arguments.batch)
    rows = [measure(network, compiled, arguments.rounds) for compiled in (False, True)]
    step = tf.function(lambda: network.step(together=True), jit_compile=True, autograph=False)
    starts, dones, products = positions(step.experimental_get_compiler_ir()("optimized_hlo"))
    if hvd.rank() == 0:
        print("| ms | alone | together | communication | exposed |\n|---|---|---|---|---|")
        print("\n".join(rows))
        print(f"of {products} matrix products come before each start: {starts}")
        print(f"before each done: {dones}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
