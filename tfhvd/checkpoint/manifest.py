"""The manifest of a checkpoint: its tensors and values, and their files. It is written last.

docs/reference/checkpoint-format.md describes it byte by byte.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from tfhvd.checkpoint.errors import CheckpointError, DamagedError
from tfhvd.checkpoint.files import checksum

NAME = "manifest.json"
FORMAT = "tfhvd checkpoint"
VERSION = 1
_LINE = '"crc32c": "{:08x}",'  # the second line: the checksum of all other lines


@dataclasses.dataclass(frozen=True)
class Entry:
    """A tensor.

    Attributes:
        name: its name, unique among the tensors of its rank and those that all ranks share.
        dtype: NumPy's name of its type.
        shape: its dimensions.
        file: the name of its file, without the folder.
        offset: the position of its first byte in the file.
        nbytes: the number of its bytes.
        crc32c: the checksum of these bytes.
        rank: the rank that it belongs to; None for a tensor that all ranks share.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset: int
    nbytes: int
    crc32c: int
    rank: int | None = None


@dataclasses.dataclass(frozen=True)
class DataFile:
    """A file of tensors.

    Attributes:
        size: the size of the file in bytes.
        header: the number of bytes before the first tensor.
        crc32c: the checksum of these bytes.
    """

    size: int
    header: int
    crc32c: int


@dataclasses.dataclass(frozen=True)
class RankPart:
    """The part of a checkpoint that one rank has written.

    Attributes:
        entries: its tensors.
        files: its files by their names.
        values: the values that are not tensors, encoded by `plain.encoded`.
    """

    entries: list[Entry]
    files: dict[str, DataFile]
    values: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A checkpoint.

    Attributes:
        step: the last step of the training before it.
        ranks: the number of ranks that have written it.
        time: the time of writing, in seconds since 1970.
        versions: the versions of the packages that have written it, by their names.
        entries: the tensors of all ranks.
        files: the files by their names.
        values: the values of each rank.
    """

    step: int
    ranks: int
    time: float
    versions: dict[str, str]
    entries: list[Entry]
    files: dict[str, DataFile]
    values: list[dict[str, Any]]

    @property
    def nbytes(self) -> int:
        """The total size of its files in bytes."""
        return sum(file.size for file in self.files.values())


def part_to_bytes(part: RankPart) -> bytes:
    """Returns the text of one rank's part."""
    return json.dumps(dataclasses.asdict(part)).encode()


def part_from_bytes(content: bytes) -> RankPart:
    """Reads the text from `part_to_bytes`."""
    found = json.loads(content)
    return RankPart(_entries(found["entries"]), _files(found["files"]), found["values"])


def to_bytes(manifest: Manifest) -> bytes:
    """Returns a manifest as JSON; the second line is a checksum of all other lines."""
    head = {"format": FORMAT, "version": VERSION}
    text = json.dumps({**head, **dataclasses.asdict(manifest)}, indent=1)
    first, _, rest = text.partition("\n")
    return f"{first}\n {_LINE.format(checksum(f'{first}{rest}'.encode()))}\n{rest}\n".encode()


def from_bytes(content: bytes, path: Path) -> Manifest:
    """Reads the text of a manifest.

    Args:
        content: the text.
        path: the path of its file, for messages.

    Raises:
        DamagedError: if the text has changed since it was written.
        CheckpointError: if the manifest is of a later version.
    """
    try:
        first, second, rest = content.decode().split("\n", 2)
        found = json.loads(content)
    except ValueError as error:
        raise DamagedError(f"{path} is no manifest of a checkpoint: {error}.") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DamagedError(f"{path} is no manifest of a checkpoint of tfhvd.")
    whole = f"{first}{rest.removesuffix(chr(10))}".encode()
    if second.strip() != _LINE.format(checksum(whole)) or not rest.endswith("\n"):
        raise DamagedError(f"{path} is damaged: its checksum is another one.")
    if found["version"] > VERSION:
        raise CheckpointError(
            f"{path} is of version {found['version']}, and this tfhvd reads versions up to "
            f"{VERSION}. Install a later tfhvd."
        )
    return Manifest(
        step=found["step"],
        ranks=found["ranks"],
        time=found["time"],
        versions=found["versions"],
        entries=_entries(found["entries"]),
        files=_files(found["files"]),
        values=found["values"],
    )


def _entries(found: list[dict[str, Any]]) -> list[Entry]:
    return [Entry(**{**entry, "shape": tuple(entry["shape"])}) for entry in found]


def _files(found: dict[str, dict[str, int]]) -> dict[str, DataFile]:
    return {name: DataFile(**file) for name, file in found.items()}
