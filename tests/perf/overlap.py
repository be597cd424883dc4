"""How much of a training step's communication is hidden behind its computation.

    tfhvdrun -np 2 python tests/perf/overlap.py [--layers 20] [--width 512] [--batch 128]
    python tests/perf/overlap.py --hosts 2 [--megabits 1000] [--pause 7] [--batch 128] ...

With --hosts on so many hosts of a rank each, which are namespaces of this machine, with a link of
that speed each (tests/network.py: needs root and g++).

A step of a network of so many equal layers, compiled with XLA and not, with one thread of each rank
to compute: alone (every rank trains its own), together, and the communication without the rest.
The three take turns, some steps each; what a step takes longer together than alone is *exposed*.
For the compiled step it prints as well where XLA's schedule places what begins each gradient's
collective: how many of the step's matrix products come before it.

All ranks share the machine's cores, and where they compute on all of them nothing is left to carry
data. With --pause the backward pass of a layer takes so many milliseconds without a core, as if
there were some to spare; that step is not compiled.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

import tfhvd as hvd

RATE = 1e-3
BEFORE, STEPS = 6, 6  # in a row, until the engine knows that they repeat, and that are timed


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


def plain_layer(y: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(y @ weight)


def pausing_layer(pause: float) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """A layer whose backward pass waits for so many seconds."""

    def wait(gradient: object) -> object:
        time.sleep(pause)
        return gradient

    @tf.custom_gradient
    def layer(y: tf.Tensor, weight: tf.Tensor) -> tuple[tf.Tensor, Callable[..., object]]:
        out = plain_layer(y, weight)

        def backward(gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            late = tf.ensure_shape(tf.numpy_function(wait, [gradient], tf.float32), out.shape)
            before = tf.matmul(late, weight, transpose_b=True)
            return before, tf.matmul(y, late, transpose_a=True)

        return out, backward

    return layer


class Network:
    """Layers that are all alike, and the steps that train them."""

    def __init__(self, layers: int, width: int, batch: int, pause: float) -> None:
        self.weights = [
            tf.Variable(tf.random.stateless_normal([width, width], [layer, 0]) / width**0.5)
            for layer in range(layers)
        ]
        self.x = tf.random.stateless_normal([batch, width], [hvd.rank(), 1])
        self.layer = pausing_layer(pause) if pause else plain_layer

    def step(self, together: bool) -> tf.Tensor:
        """Updates the weights by the gradients of one batch."""
        plain = tf.GradientTape()
        with hvd.DistributedGradientTape(plain) if together else plain as tape:
            y = self.x
            for weight in self.weights:
                y = self.layer(y, weight)
            loss = tf.reduce_mean(y * y)
        for weight, gradient in zip(self.weights, tape.gradient(loss, self.weights)):
            weight.assign_sub(RATE * gradient)
        return loss

    def communicate(self) -> list[tf.Tensor]:
        """Reduces as many bytes, all at once and with nothing beside."""
        return hvd.grouped_allreduce([tf.identity(w) for w in self.weights], name="alone")


def seconds_of(run: Callable[[], object]) -> float:
    """What the slowest rank takes for one of many steps, such as a training has."""
    for _ in range(BEFORE):
        run()
    hvd.barrier()
    began = time.perf_counter()
    for _ in range(STEPS):
        run()
    took = tf.constant((time.perf_counter() - began) / STEPS, tf.float64)
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
    for number in range(rounds + 1):
        for name, run in runs.items():
            seconds = seconds_of(run)
            if number > 0:
                times[name].append(1e3 * seconds)
    # Each round's three are neighbours in time: their differences see the same machine.
    exposed = [t - a for t, a in zip(times["together"], times["alone"])]
    cells = [statistics.median(values) for values in (*times.values(), exposed)]
    title = "compiled" if compiled else "uncompiled"
    return f"| {title} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |"


def run_on_hosts(arguments: argparse.Namespace) -> None:
    """Starts the same again on hosts of their own."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import network

    with network.hosts(arguments.hosts, network.Link(arguments.megabits, 0.1)) as net:
        words = [*net.run_on(0), sys.executable, "-m", "tfhvd.launch", "--transport", "tcp"]
        words += [*net.tfhvdrun(1), "-np", str(arguments.hosts), sys.executable, __file__]
        for name in ("layers", "width", "batch", "rounds", "pause"):
            words += [f"--{name}", str(getattr(arguments, name))]
        sys.exit(subprocess.run(words, check=False).returncode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.0, help="of each layer, in milliseconds")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--megabits", type=float, default=1000.0, help="of a host's link")
    arguments = parser.parse_args()
    if arguments.hosts > 1:
        return run_on_hosts(arguments)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    network = Network(arguments.layers, arguments.width, arguments.batch, arguments.pause / 1e3)
    kinds = (False,) if arguments.pause else (False, True)
    lines = [measure(network, compiled, arguments.rounds) for compiled in kinds]
    if not arguments.pause:
        step = tf.function(lambda: network.step(together=True), jit_compile=True, autograph=False)
        starts, dones, products = positions(step.experimental_get_compiler_ir()("optimized_hlo"))
        lines.append(f"of {products} matrix products come before each start: {starts}")
        lines.append(f"before each done: {dones}")
    if hvd.rank() == 0:
        print("| ms | alone | together | communication | exposed |\n|---|---|---|---|---|")
        print("\n".join(lines), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
