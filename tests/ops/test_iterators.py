"""The iterators of tf.data end beside the training, in threads of their own."""

import gc
import os
import threading
import time

import pytest
import tensorflow as tf
from mpi import wait_for

import tfhvd as hvd
from tfhvd.compat import iterators

pytestmark = pytest.mark.ranks(2)

THREAD = "tfhvd-iterator"


class Ends:
    """Notes in which threads the last reference to it is dropped; waits there for `may_end`."""

    def __init__(self, noted, may_end=None):
        self.noted, self.may_end = noted, may_end

    def __del__(self):
        if self.may_end is not None:
            self.may_end.wait(30)
        self.noted.append(threading.current_thread().name)


def used(noted, may_end=None):
    """An iterator that has been used; notes the end of what belongs to it."""
    dataset = tf.data.Dataset.range(4).prefetch(tf.data.AUTOTUNE)
    iterator = iter(dataset)
    assert int(next(iterator)) == 0
    iterator._dataset.noted = Ends(noted, may_end)
    return iterator


def test_an_iterator_ends_in_another_thread():
    noted = []
    iterator = used(noted)
    assert noted == []
    del iterator
    wait_for(lambda: noted == [THREAD])


def test_one_that_is_garbage_does_too():
    noted = []
    iterator = used(noted)
    iterator.itself = iterator
    del iterator
    gc.collect()
    wait_for(lambda: noted == [THREAD])


def test_a_generator_is_closed():
    closed = threading.Event()

    def numbers():
        try:
            yield from range(10)
        finally:
            closed.set()

    dataset = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int32))
    iterator = iter(dataset)
    assert int(next(iterator)) == 0
    del iterator, dataset
    wait_for(closed.is_set)


def test_the_iterator_drops_its_own_reference_first():
    """It may do so later than the thread is given another one."""
    noted = []
    resource = Ends(noted)
    iterators._end.hand_over(resource, None)
    time.sleep(0.05)
    del resource
    wait_for(lambda: noted == [THREAD])


def test_none_waits_for_the_end_of_another_one():
    slow, quick, may_end = [], [], threading.Event()
    used(slow, may_end)
    used(quick)
    wait_for(lambda: quick == [THREAD])
    assert slow == []
    may_end.set()
    wait_for(lambda: slow == [THREAD])


def test_where_many_end_at_once_some_end_where_they_are_dropped():
    noted = []
    for _ in range(300):
        used(noted)
    wait_for(lambda: len(noted) == 300)


def test_a_child_of_the_process_ends_its_own(monkeypatch):
    noted = []
    iterator = used(noted)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    del iterator
    assert noted == [threading.current_thread().name]


def test_iterators_of_graphs_are_left_alone():
    dataset = tf.data.Dataset.range(4)

    @tf.function
    def total():
        found = tf.constant(0, tf.int64)
        for number in dataset:
            found += number
        return found

    assert int(total()) == 6
    assert iterators._end._thread.is_alive() and hvd.size() == 2
