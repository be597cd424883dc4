"""Arguments -> Options, with one clear line for each mistake. No TensorFlow."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from tfhvd.bench import plot
from tfhvd.bench.collectives import COLLECTIVES
from tfhvd.bench.measure import Effort
from tfhvd.bench.rivals import MPI, RIVALS
from tfhvd.bench.subjects import ALONE, OPS
from tfhvd.bench.workloads import DEFAULT_SIZES, MODELS, TensorSet, parse_size, parse_tensors

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8")

_Value = TypeVar("_Value")

_EXAMPLES = """\
examples:
  tfhvdrun -np 2 python -m tfhvd.bench
  tfhvdrun -np 2 python -m tfhvd.bench --collectives allreduce --sizes 4 64K 16M --plot out.png
  tfhvdrun -np 2 python -m tfhvd.bench --model resnet50 bert --rivals mpi mwms --json out.json
  tfhvdrun -np 2 python -m tfhvd.bench --tensors 500x1K 1x64M
  tfhvdrun -np 2 python -m tfhvd.bench --model tiny     (the training of a small network as well)
"""


class UsageError(Exception):
    """One line that says what is wrong and what to type."""


@dataclasses.dataclass(frozen=True)
class Options:
    """The measurements to make, and the files to write.

    Attributes:
        collectives: names; empty for none, None for all collectives of the package.
        sizes: sizes in bytes, for each collective.
        dtype: the type of the tensors for collectives.
        tensors: sets of equal tensors.
        models: names from workloads.MODELS.
        rivals: names from rivals.RIVALS; a missing rival is an error if `rivals_wanted`.
        rivals_wanted: whether the user has named the rivals.
        effort: how long to measure.
        through: how the tensors of sets and models are reduced, one or more keys of subjects.ALONE.
        eager: whether to call operations one by one.
        device: "auto", "cpu" or "gpu".
        threads: the number of TensorFlow's threads for computation.
        json: the file for the rows.
        plot: the file for the picture.
        progress: whether to report the progress.
        help: the help text, if the user only asks for help.
    """

    collectives: tuple[str, ...] | None = None
    sizes: tuple[int, ...] = DEFAULT_SIZES
    dtype: str = "float32"
    tensors: tuple[TensorSet, ...] = ()
    models: tuple[str, ...] = ()
    rivals: tuple[str, ...] = (MPI,)
    rivals_wanted: bool = False
    effort: Effort = dataclasses.field(default_factory=Effort)
    through: tuple[str, ...] = (OPS,)
    eager: bool = False
    device: str = "auto"
    threads: int = 1
    json: Path | None = None
    plot: Path | None = None
    progress: bool = True
    help: str = ""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. For all options: python -m tfhvd.bench --help")


def _of(parse: Callable[[str], _Value], noun: str) -> Callable[[str], _Value]:
    """Returns a type for argparse that keeps the text of the ValueError."""

    def convert(text: str) -> _Value:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{noun}: {error}") from None

    return convert


def _positive(parse: Callable[[str], float], text: str) -> float:
    try:
        value = parse(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"{text!r}; write a number above 0")
    return value


def _parser() -> _Parser:
    parser = _Parser(
        prog="python -m tfhvd.bench",
        description="Times collectives and the gradients of models on the ranks of a job, next to "
        "plain MPI, TensorFlow's own share and, if asked for, other packages.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    count = _of(lambda text: _positive(int, text), "not a count")
    seconds = _of(lambda text: _positive(float, text), "not a time")
    add = parser.add_argument
    add("-h", "--help", action="store_true", help="print this text")
    what = parser.add_argument_group("what is measured (without any of these: all collectives)")
    what.add_argument(
        "--collectives", nargs="+", metavar="NAME", help="of " + ", ".join(COLLECTIVES)
    )
    what.add_argument(
        "--sizes",
        nargs="+",
        type=_of(parse_size, "not a size"),
        metavar="SIZE",
        help="bytes of the larger buffer of each rank: 4, 64K, 16M (default: 4 to 64M)",
    )
    what.add_argument(
        "--dtype", choices=DTYPES, default="float32", help="of --collectives (default: float32)"
    )
    what.add_argument(
        "--tensors",
        nargs="+",
        default=[],
        type=_of(parse_tensors, "not a set of tensors"),
        metavar="COUNTxSIZE",
        help="so many allreduces of so many bytes each, in one step: 500x1K",
    )
    what.add_argument(
        "--model",
        nargs="+",
        default=[],
        choices=MODELS,
        help="the gradients of a model in one step; tiny is trained as well",
    )
    what.add_argument(
        "--rivals",
        nargs="+",
        choices=[*RIVALS, "none"],
        help="mpi (through mpi4py; the default if it is installed), horovod, mwms (TensorFlow's "
        "MultiWorkerMirroredStrategy), none",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--through",
        nargs="+",
        choices=tuple(ALONE),
        default=[OPS],
        help="what reduces the tensors of --tensors and --model: an allreduce for each (ops; the "
        "default), DistributedGradientTape, DistributedOptimizer",
    )
    how.add_argument("--eager", action="store_true", help="without tf.function")
    how.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    how.add_argument("--threads", type=count, default=1, help="for computation (default: 1)")
    how.add_argument("--repetitions", type=count, default=200, help="at most (default: 200)")
    how.add_argument(
        "--seconds", type=seconds, default=1.0, help="about, for each row (default: 1)"
    )
    where = parser.add_argument_group("output, in addition to rank 0's table")
    where.add_argument("--json", type=Path, metavar="FILE", help="write all rows to this file")
    where.add_argument("--plot", type=Path, metavar="PNG", help="draw all rows into this file")
    where.add_argument("--no-progress", action="store_true", help="do not show progress")
    return parser


def parse(words: Sequence[str]) -> Options:
    """Returns the options in the arguments of the command line.

    Raises:
        UsageError: if an argument is wrong.

    Example:
        >>> parse(["--model", "bert", "--rivals", "none"]).models
        ('bert',)
    """
    parser = _parser()
    if "-h" in words or "--help" in words:
        return Options(help=parser.format_help())
    got = parser.parse_args(list(words))
    unknown = [name for name in got.collectives or () if name not in COLLECTIVES]
    if unknown:
        raise UsageError(
            f"--collectives has no {', '.join(unknown)}; choose from {', '.join(COLLECTIVES)}."
        )
    others = bool(got.tensors or got.model)
    if got.sizes and others and not got.collectives:
        raise UsageError(
            "--sizes says how large the tensors of --collectives are, but none are measured. Name "
            "them: --collectives allreduce"
        )
    if "none" in (got.rivals or ()) and len(got.rivals) > 1:
        raise UsageError(
            f"--rivals {' '.join(got.rivals)} is contradictory; write only none, or only names."
        )
    if got.plot and plot.missing():
        raise UsageError(f"--plot {got.plot} cannot be drawn. {plot.missing()}")
    return Options(
        collectives=_unique(got.collectives) if got.collectives else (() if others else None),
        sizes=_unique(got.sizes or DEFAULT_SIZES),
        dtype=got.dtype,
        tensors=_unique(got.tensors),
        models=_unique(got.model),
        rivals=() if got.rivals == ["none"] else _unique(got.rivals or [MPI]),
        rivals_wanted=bool(got.rivals),
        effort=Effort(got.repetitions, got.seconds),
        through=_unique(got.through),
        eager=got.eager,
        device=got.device,
        threads=got.threads,
        json=got.json,
        plot=got.plot,
        progress=not got.no_progress,
    )


def _unique(values: Iterable[_Value]) -> tuple[_Value, ...]:
    return tuple(dict.fromkeys(values))
