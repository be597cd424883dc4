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
        assert hvd.global_process_set.ranks is None
        with pytest.raises(tf.errors.FailedPreconditionError, match=r"hvd.init\(\)"):
            function(tf.constant(1.0))
        for call in (hvd.rank, hvd.local_size, lambda: hvd.allreduce(1.0), hvd.barrier):
            with pytest.raises(hvd.NotInitializedError, match=r"Call hvd.init\(\) first"):
                call()
        hvd.shutdown()
        hvd.init()
        assert hvd.size() == size


def test_shutdown_takes_no_notice_of_the_environment(monkeypatch):
    for setting in ("TFHVD_CYCLE_TIME", "TFHVD_STALL_CHECK_TIME_SECONDS", "TFHVD_LOG_LEVEL"):
        monkeypatch.setenv(setting, "nonsense")
    hvd.shutdown()
    with pytest.raises(ValueError, match="nonsense"):
        hvd.init()
    monkeypatch.undo()
    hvd.init()
    assert hvd.allreduce(1.0, op=hvd.Sum) == hvd.size()


def test_the_global_process_set_is_all_ranks():
    everyone = hvd.global_process_set
    assert (everyone.process_set_id, everyone.ranks) == (0, list(range(hvd.size())))
    assert (everyone.rank(), everyone.size(), everyone.included()) == (hvd.rank(), hvd.size(), True)
    last = hvd.ProcessSet([hvd.size() - 1])
    assert last.included() == (hvd.rank() == hvd.size() - 1)
    assert (last.size(), last.rank()) == (1, 0 if last.included() else -1)
    assert isinstance(last.ranks, list)
    last.ranks.append(7)  # whoever asks may do with the list as he likes
    assert last.ranks == [hvd.size() - 1]
    with pytest.raises(ValueError, match=r"Received: \[1, 1\]"):
        hvd.ProcessSet([1, 1])


@pytest.fixture
def started():
    """This process's number, and of how many; afterwards the job of all of them is there again."""
    number, size = hvd.rank(), hvd.size()
    hvd.shutdown()
    yield number, size
    hvd.shutdown()
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (number, size)


@pytest.mark.ranks(1, 2, 4)
def test_jobs_of_some_ranks_side_by_side(started):
    number, size = started
    mine = [other for other in reversed(range(size)) if other % 2 == number % 2]
    for _ in range(2):  # the same job again
        hvd.init(comm=mine)
        assert [hvd.rank(), hvd.size()] == [mine.index(number), len(mine)]
        assert (hvd.local_rank(), hvd.local_size()) == (hvd.rank(), hvd.size())
        assert hvd.allgather_object(number) == mine
        assert hvd.broadcast_object(number, root_rank=len(mine) - 1) == mine[-1]
        with tf.GradientTape() as tape:
            x = tf.constant(float(number))
            tape.watch(x)
            y = hvd.allreduce(x, op=hvd.Sum)
        assert (y, tape.gradient(y, x)) == (sum(mine), len(mine))
        if len(mine) > 1:
            last = hvd.add_process_set([len(mine) - 1])
            if last.included():
                assert hvd.allreduce(float(number), process_set=last) == mine[-1]
        hvd.init(comm=mine)
        with pytest.raises(ValueError, match=r"Expected: None, or the same .*hvd.shutdown"):
            hvd.init(comm=[*mine, 77])
        hvd.barrier()
        hvd.shutdown()
    hvd.init(comm=range(size))
    assert hvd.rank() == number


@pytest.mark.ranks(1, 2, 4)
def test_jobs_of_communicators(started):
    mpi = pytest.importorskip("mpi4py.MPI")
    number, size = started
    world = mpi.COMM_WORLD
    backwards = world.Split(number // 2, -number)
    mine = backwards.allgather(number)
    hvd.init(comm=backwards)
    assert (hvd.rank(), hvd.size()) == (backwards.Get_rank(), backwards.Get_size())
    assert hvd.allgather_object(number) == mine
    alone = hvd.add_process_set(backwards.Split(number)) if len(mine) > 1 else None
    if alone is not None:
        assert alone.ranks == [hvd.rank()]
        assert hvd.allreduce(float(number), op=hvd.Sum, process_set=alone) == number
        with pytest.raises(ValueError, match="pass a communicator"):
            hvd.ProcessSet(mpi.COMM_NULL)
    if alone is not None and size > len(mine):
        with pytest.raises(ValueError, match="which are not in the job"):
            hvd.ProcessSet(mpi.COMM_WORLD)
    hvd.barrier()
    hvd.shutdown()
    if size > 1:
        hvd.init(comm=[world, world.Split(number % 2)])
        assert hvd.size() == size
        assert len(hvd.get_process_set_ids_and_ranks()) == 3
        hvd.barrier()
        hvd.shutdown()
    with pytest.raises(ValueError, match="pass a communicator"):
        hvd.init(comm=mpi.COMM_NULL)


@pytest.mark.ranks(1, 2, 4)
def test_init_refuses_what_makes_no_job(started):
    number, size = started
    for wrong in ([size], [0, 0], [-1]):
        with pytest.raises(ValueError, match=r"Received: comm=\[.*Expected: different numbers"):
            hvd.init(comm=wrong)
    with pytest.raises(ValueError, match=r"comm=\[\] names none; pass comm=None"):
        hvd.init(comm=[])
    for wrong in (3, "all", [0.5]):
        with pytest.raises(TypeError, match="Expected: None, a list of ranks, a communicator"):
            hvd.init(comm=wrong)
    if number == size - 1 and size > 1:
        with pytest.raises(ValueError, match=rf"is number {number} of the {size} .* with {number}"):
            hvd.init(comm=range(number))
    assert not hvd.is_initialized()


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
    from tfhvd.settings import settings

    by_name = {setting.name: setting for setting in settings()}
    assert by_name["TFHVD_FUSION_THRESHOLD"].horovod_name == "HOROVOD_FUSION_THRESHOLD"
    assert by_name["TFHVD_FUSION_THRESHOLD"].default == str(128 << 20)
    assert all(setting.meaning.endswith(".") for setting in settings())
