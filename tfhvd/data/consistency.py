"""Whether the ranks divide the same data in the same way: what they can see together."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence

from tfhvd.compat.datasets import Pipeline
from tfhvd.ops import allgather_object
from tfhvd.runtime.elastic.replay import comers
from tfhvd.runtime.process_sets import ProcessSet

_logger = logging.getLogger("tfhvd")


@dataclasses.dataclass(frozen=True)
class Given:
    """What a rank is given to divide.

    Attributes:
        arguments: by name, what must be equal on all ranks.
        content: a number for the elements and their order, None if it is not known.
        seeds: of the shuffles that come before.
    """

    arguments: Mapping[str, object]
    content: int | None = None
    seeds: tuple[tuple[int, int], ...] = ()


def check(caller: str, own: Given, process_set: ProcessSet) -> None:
    """Compares the arguments of all ranks, except those that join an elastic job.

    Args:
        caller: what compares, as its users call it.
        own: what this rank is given.
        process_set: the ranks that the data are divided among.

    Raises:
        ValueError: on all ranks, if the parts would be of different divisions.
    """
    with comers.do_without() as takes_part:
        if not takes_part:
            return
        of_ranks = allgather_object(own, name=caller, process_set=process_set)
    ranks = process_set.ranks
    for name in dict.fromkeys(name for given in of_ranks for name in given.arguments):
        values = [given.arguments.get(name) for given in of_ranks]
        if any(value != values[0] for value in values):
            hint = (
                " (data that are divided already are not divided again)" if name == "length" else ""
            )
            raise ValueError(
                f"{caller} divides the same data in the same way on every rank{hint}. Received: "
                f"{name}={values} on ranks {ranks}. Expected: one {name}."
            )
    if process_set.rank() == 0:
        _compare_orders(caller, of_ranks, ranks)


def _compare_orders(caller: str, of_ranks: Sequence[Given], ranks: list[int] | None) -> None:
    contents = [given.content for given in of_ranks]
    if len(set(contents)) > 1 and None not in contents:
        others = [rank for rank, c in zip(ranks or (), contents) if c != contents[0]]
        _warn(
            caller,
            "the data, or their order, are not the same on all ranks",
            f"other elements on ranks {others} than on the first",
            "the same on every rank: shuffled with one seed, or by hvd.shard(shuffle=True); names "
            "of files sorted; not divided before",
        )
    if len({given.seeds for given in of_ranks}) > 1:
        _warn(
            caller,
            "the dataset was shuffled with a seed that differs between ranks, so elements are on "
            "several ranks or on none",
            f"seeds {[list(given.seeds) for given in of_ranks]} on ranks {ranks}",
            "hvd.shard(shuffle=True), which has one seed; or to shuffle after hvd.shard",
        )


def warn_of_pipeline(pipeline: Pipeline, shuffles: bool) -> None:
    """Warns of what a dataset shows to be wrong with it, on whatever rank.

    Args:
        pipeline: the steps before.
        shuffles: whether the division shuffles.
    """
    if (0, 0) in pipeline.seeds:
        _warn(
            "hvd.shard",
            "the dataset was shuffled without a seed: each rank has another order, so "
            "elements are on several ranks or on none",
            "shuffle (or list_files) without seed=",
            "hvd.shard(shuffle=True), which has one seed; or to shuffle after hvd.shard, and "
            "list_files(shuffle=False)",
        )
    if pipeline.unordered:
        _warn(
            "hvd.shard",
            "the order of the dataset depends on which elements are ready first, so elements are "
            "on several ranks or on none",
            "deterministic=False before hvd.shard",
            "hvd.shard first, then the steps with deterministic=False",
        )
    if pipeline.sharded:
        _warn(
            "hvd.shard",
            "the dataset was divided before, and is divided again, so most elements are on no rank",
            "two calls of shard or hvd.shard",
            "one of them",
        )
    if pipeline.batched:
        also = ", and batches are shuffled, not samples" if shuffles else ""
        _warn(
            "hvd.shard",
            f"whole batches are dealt out{also}; each rank has to make the batches of all ranks",
            "batch before hvd.shard",
            "hvd.shard first, then batch",
        )


def _warn(caller: str, what: str, received: str, expected: str) -> None:
    _logger.warning("%s: %s. Received: %s. Expected: %s.", caller, what, received, expected)
