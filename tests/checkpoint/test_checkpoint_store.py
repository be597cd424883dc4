"""The store of checkpoints: whole or not there, damage named, old ones removed, nothing else."""

from __future__ import annotations

import errno
import json
import os
import random

import kills
import numpy as np
import pytest

from tfhvd.checkpoint import manifest as manifests
from tfhvd.checkpoint import plain, tensors
from tfhvd.checkpoint.errors import CheckpointError, DamagedError
from tfhvd.checkpoint.files import Files
from tfhvd.checkpoint.names import same_names
from tfhvd.checkpoint.store import Store


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "run")
    os.close(store.lock())
    return store


def names(store):
    return sorted(path.name for path in store.path.iterdir() if path.name != "lock")


def test_what_ranks_have_written_is_read_again(store):
    assert kills.save(store, 7, "00000000").error is None
    assert names(store) == ["step-00000007"] and store.steps() == [7]
    kills.assert_whole(store, 7)
    assert store.manifest(7).values == [{"rank": 0}, {"rank": 1}]


def test_the_library_reads_the_files(store):
    numpy = pytest.importorskip("safetensors.numpy")
    kills.save(store, 7, "00000000")
    found = {}
    for path in store.folder(7).glob("*.safetensors"):
        found |= numpy.load_file(path)
    for name, array in kills.arrays_of(7, None).items():
        np.testing.assert_array_equal(found[name], array)
    assert json.loads((store.folder(7) / "manifest.json").read_text())["version"] == 1


@pytest.mark.parametrize(
    "array",
    [
        np.float32(3),
        np.zeros((0, 2), "float64"),
        np.arange(6, dtype="int8").reshape(2, 3).T,
        np.array([[1 + 2j]], "complex128"),
        np.array(True),
    ],
    ids=str,
)
def test_arrays_of_all_kinds(array, tmp_path):
    [entry], _ = tensors.write(Files(), tmp_path / "a.safetensors", {"a": array}, None)
    found = tensors.read(tmp_path, entry)
    np.testing.assert_array_equal(found, array)
    assert (found.dtype, found.shape) == (np.asarray(array).dtype, np.shape(array))


def test_bfloat16(tmp_path):
    dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    array = np.arange(5).astype(dtype)
    [entry], _ = tensors.write(Files(), tmp_path / "a.safetensors", {"a": array}, 1)
    assert tensors.read(tmp_path, entry).dtype == dtype and entry.rank == 1
    np.testing.assert_array_equal(tensors.read(tmp_path, entry), array)


def test_each_rank_writes_about_as_much():
    sizes = [100, 1, 50, 49, 2, 98]
    writers = tensors.shares(sizes, 3)
    loads = [sum(s for s, w in zip(sizes, writers) if w == rank) for rank in range(3)]
    assert sum(loads) == sum(sizes) and max(loads) <= 101


def test_a_flipped_bit_in_any_file_is_named(store):
    kills.save(store, 1, "00000001")
    kills.save(store, 2, "00000002")
    draw = random.Random(0)
    for path in sorted(store.folder(2).iterdir()):
        whole = path.read_bytes()
        for _ in range(20):
            changed = bytearray(whole)
            changed[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
            path.write_bytes(changed)
            with pytest.raises(DamagedError) as error:
                store.verify(2)
            assert str(path) in str(error.value)
        said = []
        assert store.newest(said.append) == 1 and str(path) in said[0]
        path.write_bytes(whole[:-1])
        with pytest.raises(DamagedError, match=path.name):
            store.verify(2)
        path.unlink()
        with pytest.raises(DamagedError, match=path.name):
            store.verify(2)
        path.write_bytes(whole)
    assert store.newest(said.append) == 2


@pytest.mark.thorough
def test_a_process_that_ends_anywhere_leaves_whole_ones(tmp_path):
    folder = tmp_path / "run"
    last, step, at, done = 0, 0, 0, False
    while not done:
        step += 1
        announced, ended = kills.killed(folder, at, step, keep=2)
        store = Store(folder)
        for other in store.steps():
            kills.assert_whole(store, other)
        newest = store.newest(lambda text: None) or 0
        assert newest >= (step if announced else last)
        last, done, at = max(newest, last), not ended and at % 3 == 0, at + 1
    assert at > 40 and announced
    store.prepare()
    assert names(store) == [f"step-{n:08d}" for n in (step - 1, step)] or len(names(store)) == 2


def test_one_of_the_same_step_is_replaced(store):
    kills.save(store, 1, "00000000")
    (store.folder(1) / "manifest.json").write_text("{}")
    kills.save(store, 1, "00000001")
    kills.assert_whole(store, 1)
    store.folder(1).rename(store.path / "replaced-00000001-00000001")  # as a kill leaves it
    store.prepare()
    kills.assert_whole(store, 1)


def test_the_last_ones_are_kept_and_later_ones_left(store):
    for step in (9, 1, 2, 3):
        kills.save(store, step, f"{step:08x}", keep=2)
    assert store.steps() == [2, 3, 9]


def test_only_what_an_aborted_save_has_left_is_removed(store):
    kills.save(store, 1, "00000000")
    left = ["saving-00000002-0123abcd", "removed-00000000-0123abcd"]
    others = ["notes.txt", "saving-2", "step-1", "saving-00000002-0123abcd.old"]
    for name in left + others:
        (store.path / name).mkdir()
    store.prepare()
    assert names(store) == sorted(["step-00000001", *others])


class Full(Files):
    """A disk that is full when a file of some name is written."""

    def __init__(self, name):
        self.name = name

    def write(self, path, content):
        self._fail(path)
        super().write(path, content)

    def write_tensors(self, path, given):
        self._fail(path)
        super().write_tensors(path, given)

    def _fail(self, path):
        if path.name.startswith(self.name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.mark.parametrize("name", ["shared-0000", "own-0001", "part-0001", "manifest"])
def test_a_full_disk(store, name):
    kills.save(store, 1, "00000000")
    store.files = Full(name)
    assert kills.save(store, 2, "00000001").error is not None
    store.files = Files()
    assert store.newest(lambda text: None) == 1
    store.prepare()
    assert names(store) == ["step-00000001"]


def test_the_library_says_why_it_cannot_write(tmp_path):
    with pytest.raises(OSError, match="missing"):
        Files().write_tensors(tmp_path / "missing" / "a", {"a": np.zeros(1)})


class TestBadFolders:
    def test_a_file(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(CheckpointError, match="file is a file"):
            Store(tmp_path / "file")
        with pytest.raises(CheckpointError, match="cannot be written: Not a directory"):
            Store(tmp_path / "file" / "run").lock()

    def test_something_else(self, tmp_path):
        (tmp_path / "holiday.jpg").touch()
        store = Store(tmp_path)
        with pytest.raises(CheckpointError, match="has no checkpoints, and other things in it"):
            store.prepare()
        assert (tmp_path / "holiday.jpg").exists()

    def test_a_later_version(self, store):
        kills.save(store, 1, "00000000")
        path = store.folder(1) / manifests.NAME
        text = manifests.to_bytes(store.manifest(1))
        lines = text.replace(b'"version": 1', b'"version": 2').decode().splitlines()
        rest = lines[0] + "\n".join(lines[2:])
        lines[1] = f' "crc32c": "{manifests.checksum(rest.encode()):08x}",'
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(CheckpointError, match=r"of version 2, .* up to 1\. Install a later"):
            store.newest(lambda text: None)

    def test_another_process_writes_there(self, store):
        held = store.lock()
        os.pwrite(held, b"process 1 on moon", 0)
        try:
            with pytest.raises(CheckpointError, match="is written by process 1 on moon"):
                store.lock()
        finally:
            os.close(held)
        os.close(store.lock())


def test_plain_values():
    value = {"a": [1, 2.5, None, True], "t": (1, ("x",)), "n": np.float32(0.1), "v": np.arange(3)}
    found = plain.decoded(json.loads(json.dumps(plain.encoded(value))))
    np.testing.assert_array_equal(found.pop("v"), np.arange(3))
    assert found == {"a": [1, 2.5, None, True], "t": (1, ("x",)), "n": float(np.float32(0.1))}
    with pytest.raises(TypeError, match="a value of type object"):
        plain.encoded({"a": [object()]})


def test_names_that_keras_numbers():
    wanted = ["m/dense_5/kernel", "m/dense_12/kernel", "adam/dense_5_kernel_momentum", "new"]
    saved = ["m/dense/kernel", "m/dense_1/kernel", "adam/dense_kernel_momentum"]
    assert same_names(wanted, saved) == dict(zip(wanted, saved))
