"""tfhvd.run: a function on every rank of a new job."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading

import pytest
from launching import environment, wait_until_gone

import tfhvd
from tfhvd.launch.run import caller
from tfhvd.protocol import transfer


def test_results_come_in_the_order_of_ranks(capfd):
    offset = 10  # of this function: pickle could not write what follows

    def work(factor, add=0):
        import os

        import tfhvd as hvd

        hvd.init()
        print("working\n", end="")  # in one piece
        return hvd.rank() * factor + add + offset, hvd.size(), os.environ["COLOUR"]

    results = tfhvd.run(work, args=(3,), kwargs={"add": 1}, np=3, env={"COLOUR": "light blue"})
    assert results == [(11 + 3 * rank, 3, "light blue") for rank in range(3)]
    assert sorted(capfd.readouterr().out.split("\n")[:3]) == [
        f"[{rank}] working" for rank in (0, 1, 2)
    ]


def test_large_arguments_and_results():
    [size] = tfhvd.run(lambda data: data + data, (b"x" * (5 << 20),), num_proc=1)
    assert size == b"x" * (10 << 20)


def test_what_the_rank_raises_is_raised_here():
    def work():
        import tfhvd as hvd

        hvd.init()
        if hvd.rank() == 1:
            raise KeyError("no such sample")
        hvd.shutdown()

    with pytest.raises(tfhvd.RankFailedError, match="failed with KeyError") as e:
        tfhvd.run(work, np=2)
    assert e.value.rank == 1
    assert 'raise KeyError("no such sample")' in e.value.traceback
    assert isinstance(e.value.__cause__, KeyError)


@pytest.mark.thorough
def test_the_source_of_a_function_is_found_by_the_ranks():
    """As AutoGraph does; without it the loop below runs over a symbolic tensor, and raises."""

    def work():
        import tensorflow as tf

        @tf.function
        def triangle(count):
            total = 0
            while count > 0:
                total += count
                count -= 1
            return total

        return int(triangle(tf.constant(4)))

    assert tfhvd.run(work, np=1) == [10]


def test_a_rank_that_ends_without_a_word():
    with pytest.raises(tfhvd.RankFailedError, match="exit code 7: rank 0 returned nothing") as e:
        tfhvd.run(lambda: __import__("os")._exit(7), np=1)
    assert "tfhvdrun: rank 0" in str(e.value)


def test_a_rank_that_is_killed_is_named_though_others_raise():
    def work():
        import os
        import signal

        import tfhvd as hvd

        hvd.init()
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.add_process_set([0, 1])

    with pytest.raises(tfhvd.RankFailedError, match="exit code 137") as e:
        tfhvd.run(work, np=2)
    assert e.value.rank == 1
    assert "tfhvdrun: rank 1" in str(e.value) and "killed by SIGKILL" in str(e.value)


def test_who_raised_first_is_named_though_another_answered_before():
    def raised(rank):
        return rank, pickle.dumps(("raised", (f"Error: {rank}", "trace", None)))

    answers = [raised(0), (2, pickle.dumps(("returned", 5))), raised(1)]
    for last, first in ((["tfhvdrun: rank 1 on host a failed first: exit code 1"], 1), ([], 0)):
        with pytest.raises(tfhvd.RankFailedError, match=f"Error: {first}") as e:
            caller._results(3, answers, 1, last)
        assert e.value.rank == first


def test_results_that_cannot_be_pickled():
    with pytest.raises(tfhvd.RankFailedError, match="failed with TypeError"):
        tfhvd.run(lambda: __import__("threading").Lock(), np=1)


def test_nothing_outlives_the_caller(tmp_path):
    mark = str(tmp_path / "mark")
    program = f"""
import tfhvd
def work():
    import subprocess, sys, time
    open({mark!r}, "w").close()
    subprocess.run([sys.executable, "-c", "import time; time.sleep(60)", {mark!r}])
tfhvd.run(work, np=1)
"""
    caller = subprocess.Popen([sys.executable, "-c", program], env=environment())
    try:
        while not os.path.exists(mark) and caller.poll() is None:  # noqa: PTH110
            os.sched_yield()
    finally:
        caller.send_signal(signal.SIGKILL)
        caller.wait()
    assert not wait_until_gone(mark)


def test_ranks_that_meet_without_an_mpi_return_their_own_results():
    def work():
        import tfhvd as hvd

        hvd.init()
        return hvd.rank()

    assert tfhvd.run(work, np=2, use_gloo=True) == [0, 1]


def loses_one(at):
    import os
    import signal

    import tfhvd as hvd
    from tfhvd.runtime.native import load_native

    hvd.init()
    start = hvd.rank()
    for step in range(10):
        if start == 1 and step == at:
            os.kill(os.getpid(), signal.SIGKILL)
        load_native().join()  # needs no TensorFlow, which takes its time to start
    return start, hvd.rank(), hvd.size()


def test_an_elastic_job_returns_what_those_at_its_end_return():
    results = tfhvd.run(loses_one, args=(5,), np=3, min_num_proc=2)
    assert results == [(0, 0, 2), (2, 1, 2)]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"np": 0}, ValueError, "Received: '0'"),
        ({"np": 2, "num_proc": 3}, ValueError, "one argument"),
        ({"np": 5, "hosts": "a:2"}, ValueError, "a:2 gives 2"),
        ({"np": 2, "min_np": 3}, ValueError, "--min-np 3 is more than the 2 ranks"),
        ({"np": 2, "min_np": 1, "min_num_proc": 2}, ValueError, "one argument"),
        ({"np": 1, "use_gloo": True, "use_mpi": True}, ValueError, "exclude each other"),
        ({"func": 3}, TypeError, "Expected: a function"),
        pytest.param({"args": (threading.Lock(),)}, TypeError, "cannot pickle", id="a lock"),
    ],
    ids=str,
)
def test_arguments_that_cannot_be_meant(arguments, error, says):
    with pytest.raises(error, match=says):
        tfhvd.run(**{"func": print, **arguments})


def test_a_stranger_gets_nothing():
    with_secret = transfer.Exchange(b"secret", {}, remote=False)
    try:
        addresses = with_secret.environment[transfer.ADDRESS]
        token = with_secret.environment[transfer.TOKEN]
        with pytest.raises(OSError, match="does not know the token"):
            transfer.join(addresses, "0" * 32, 0)
        channel, payload = transfer.join(addresses, token, 0)
        with channel.sock:
            assert payload == b"secret"
    finally:
        with_secret.close()
