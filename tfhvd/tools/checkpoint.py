"""``tfhvd checkpoint``: the checkpoints of a folder, what is in them, whether they are whole."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tfhvd.checkpoint.errors import CheckpointError
from tfhvd.checkpoint.manifest import Manifest
from tfhvd.checkpoint.store import Store
from tfhvd.launch.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the words behind ``tfhvd checkpoint``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    lists = actions.add_parser("ls", help="lists the checkpoints of a folder")
    shows = actions.add_parser("show", help="lists the tensors of a checkpoint")
    verifies = actions.add_parser("verify", help="reads checkpoints, and names what is damaged")
    for action in (lists, shows, verifies):
        action.add_argument("folder", type=Path, metavar="FOLDER", help="of checkpoints")
    for action in (shows, verifies):
        action.add_argument(
            "--step", type=int, help="of the checkpoint; the last one, or for verify all"
        )


def run(options: argparse.Namespace) -> int:
    """Does it; returns the exit code: 1 if a checkpoint is damaged."""
    try:
        store = Store(options.folder)
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    steps = store.steps()
    wanted = getattr(options, "step", None)
    if not steps or wanted not in (None, *steps):
        which = "" if wanted is None else f" of step {wanted}"
        raise UsageError(f"there is no checkpoint{which} in {options.folder}")
    if options.action == "show":
        return _show(store, steps[-1] if wanted is None else wanted)
    whole = True
    for step in steps if wanted is None else [wanted]:
        try:
            found = store.verify(step) if options.action == "verify" else store.manifest(step)
            print(_line(found))
        except CheckpointError as error:
            whole = False
            print(f"step {step}: {error}")
    return 0 if whole else 1


def _line(found: Manifest) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.time))
    tensors = f"{len(found.entries)} tensors, {found.nbytes / 1e6:.3f} MB"
    return f"step {found.step}: {when}, {found.ranks} ranks, {tensors}"


def _show(store: Store, step: int) -> int:
    try:
        found = store.manifest(step)
    except CheckpointError as error:
        print(error)
        return 1
    print(_line(found))
    print(", ".join(f"{name} {version}" for name, version in found.versions.items()))
    for entry in sorted(found.entries, key=lambda entry: (entry.rank is not None, entry.name)):
        whose = "" if entry.rank is None else f" (of rank {entry.rank})"
        print(f"{entry.name}{whose}: {entry.dtype}{list(entry.shape)}")
    for rank, values in enumerate(found.values):
        print(f"values of rank {rank}: {', '.join(values) or 'none'}")
    return 0
