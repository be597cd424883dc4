"""hvd.data.RecordFiles: records by number, an index for each file, damage by file and byte."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfhvd.data import RecordFiles


def write(path, records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path


RECORDS = [b"", b"a", b"b" * 1000, *(f"record {n}".encode() for n in range(20))]


@pytest.fixture
def files(tmp_path):
    return [
        write(tmp_path / "0.tfrecord", RECORDS[:10]),
        write(tmp_path / "none.tfrecord", []),
        write(tmp_path / "1.tfrecord", RECORDS[10:]),
    ]


def test_records_by_number_in_the_order_of_the_files(files):
    records = RecordFiles(files)
    assert len(records) == len(RECORDS)
    assert [records[number] for number in range(len(RECORDS))] == RECORDS
    assert records.__getitems__([22, 0, 2]) == [RECORDS[22], RECORDS[0], RECORDS[2]]
    for number in (-1, len(RECORDS)):
        with pytest.raises(IndexError, match=f"record {number}. Expected: 0 to 22"):
            records[number]


def test_an_index_is_made_once(files, monkeypatch):
    RecordFiles(files)
    monkeypatch.setattr(RecordFiles, "_scanned", None)
    assert [RecordFiles(files)[number] for number in (0, 22)] == [RECORDS[0], RECORDS[22]]


@pytest.mark.parametrize("fault", ["empty", "cut", "other", "of another file"])
def test_an_index_that_is_not_the_files(files, fault):
    RecordFiles(files)
    index = files[0].with_name("0.tfrecord.index")
    content = index.read_bytes()
    if fault == "of another file":
        write(files[0], reversed(RECORDS[:9]))
        os.utime(files[0], ns=(1, 1))
        assert RecordFiles(files)[0] == RECORDS[8]
        return
    changed = bytearray(content)
    changed[50] ^= 1
    index.write_bytes({"empty": b"", "cut": content[:-9], "other": bytes(changed)}[fault])
    assert [RecordFiles(files)[number] for number in (0, 22)] == [RECORDS[0], RECORDS[22]]
    assert index.read_bytes() == content


def test_a_folder_for_indexes(files, tmp_path):
    folder = tmp_path / "indexes"
    folder.mkdir()
    assert len(RecordFiles(files, index_folder=folder)) == len(RECORDS)
    assert sorted(path.name for path in folder.iterdir()) == [
        "0.tfrecord.index",
        "1.tfrecord.index",
        "none.tfrecord.index",
    ]
    assert not list(tmp_path.glob("*.index*"))


def test_where_no_index_can_be_written(files, tmp_path):
    assert len(RecordFiles(files, index_folder=tmp_path / "missing")) == len(RECORDS)


def offsets(records):
    """Where they begin: each has 16 bytes beside its data."""
    return np.cumsum([0, *(len(record) + 16 for record in records)]).tolist()


def test_a_damaged_record_is_named_by_file_and_byte(files):
    begin = offsets(RECORDS)[5]
    RecordFiles(files)
    content = bytearray(files[0].read_bytes())
    content[begin + 14] ^= 4
    times = files[0].stat()
    files[0].write_bytes(content)
    os.utime(files[0], ns=(times.st_atime_ns, times.st_mtime_ns))  # the index is valid
    records = RecordFiles(files)
    assert records[4] == RECORDS[4] and records[6] == RECORDS[6]
    with pytest.raises(ValueError, match=rf"0.tfrecord is damaged in the record at byte {begin}: "):
        records[5]


@pytest.mark.parametrize("rest", [3, 14, 20])
def test_a_file_that_ends_in_a_record(files, rest):
    begin = offsets(RECORDS[:10])[-2]
    files[0].write_bytes(files[0].read_bytes()[: begin + rest])
    with pytest.raises(ValueError, match=f"at byte {begin}: the file ends in it"):
        RecordFiles(files)


def test_a_length_that_is_damaged(files):
    content = bytearray(files[0].read_bytes())
    content[offsets(RECORDS)[2]] ^= 1
    files[0].write_bytes(content)
    with pytest.raises(ValueError, match=f"at byte {offsets(RECORDS)[2]}: the checksum of its len"):
        RecordFiles(files)


def test_a_compressed_file(tmp_path):
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        writer.write(b"record" * 20)
    with pytest.raises(ValueError, match="a compressed file is no such file"):
        RecordFiles([path])


def test_without_the_package(monkeypatch, files):
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(ImportError, match="Type: pip install google-crc32c"):
        RecordFiles(files)


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_it_leaves_no_descriptor_open(files):
    before = descriptors()
    records = RecordFiles(files)
    assert records[0] == b"" and records[22]
    assert descriptors() == before + 2
    del records
    assert descriptors() == before


def test_many_files_need_few_descriptors(tmp_path):
    paths = [write(tmp_path / f"{n}.tfrecord", [b"%d" % n]) for n in range(200)]
    before, records = descriptors(), RecordFiles(paths)
    assert [int(records[n]) for n in [*range(200), 0, 199]] == [*range(200), 0, 199]
    assert descriptors() - before <= 64
