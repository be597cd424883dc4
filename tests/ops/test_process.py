"""hvd.init, shutdown, rank, size and their like."""

import os
import sys

import pytest
import tensorflow as tf

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)


@pytest.mark.ranks(1, 2, 4)
def test_every_rank_has_its_place(number_of_ranks):
    assert hvd.size() == number_of_ranks
    assert hvd.is_initialized()
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
    # The tests run on one host.
    assert (hvd.local_rank(), hvd.local_size()) == (hvd.rank(), hvd.size())
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.is_homogeneous()


def test_init_twice_is_one():
    hvd.init()
    hvd.init(comm=None, process_sets=[])
    assert hvd.allreduce(1.0) == 1.0


@pytest.mark.ranks(1, 2, 4)
def test_init_after_shutdown():
    function = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))
    for _ in range(3):
        assert function(tf.constant(1.0)) == float(hvd.size())
        size = hvd.size()
        hvd.shutdown()
        assert not hvd.is_initialized()
        with pytest.raises(tf.errors.FailedPreconditionError, match=r"hvd.init\(\)"):
            function(tf.constant(1.0))
        for call in (hvd.rank, hvd.local_size, lambda: hvd.allreduce(1.0), hvd.barrier):
            with pytest.raises(hvd.NotInitializedError, match=r"Call hvd.init\(\) first"):
                call()
        hvd.shutdown()
        hvd.init()
        assert hvd.size() == size


def test_the_global_process_set_is_all_ranks():
    everyone = hvd.global_process_set
    assert (everyone.process_set_id, everyone.ranks) == (0, None)
    assert (everyone.rank(), everyone.size(), everyone.included()) == (hvd.rank(), hvd.size(), True)
    last = hvd.ProcessSet([hvd.size() - 1])
    assert last.included() == (hvd.rank() == hvd.size() - 1)
    assert (last.size(), last.rank()) == (1, 0 if last.included() else -1)
    with pytest.raises(ValueError, match=r"Received: \[1, 1\]"):
        hvd.ProcessSet([1, 1])


def test_init_refuses_what_it_has_no_use_for():
    with pytest.raises(NotImplementedError, match=r"Received: comm=\[0\]. Expected: None"):
        hvd.init(comm=[0])


def test_a_forked_child_has_no_part_in_the_job():
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        text = f"{hvd.is_initialized()}: "
        try:
            hvd.rank()
        except hvd.NotInitializedError as error:
            text += str(error)
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    assert os.waitpid(child, 0)[1] == 0
    assert text.startswith("False: This process was forked")
    assert hvd.allreduce(1.0) == 1.0


def test_build_info_says_what_there_is():
    info = hvd.build_info()
    assert info.tensorflow == tf.__version__
    assert [b.name for b in info.backends if b.available][:1] == ["inproc"]
    text = str(info)
    assert f"TensorFlow  {tf.__version__}" in text
    assert f"Python      {sys.version.split()[0]}" in text


def test_settings_are_listed():
    from tfhvd.config import settings

    by_name = {setting.name: setting for setting in settings()}
    assert by_name["TFHVD_FUSION_THRESHOLD"].horovod_name == "HOROVOD_FUSION_THRESHOLD"
    assert by_name["TFHVD_FUSION_THRESHOLD"].default == str(128 << 20)
    assert all(setting.meaning.endswith(".") for setting in settings())
