"""The examples in the docstrings of the public names run, and print what they say."""

from __future__ import annotations

import doctest
import inspect
import os
import time
from pathlib import Path
from typing import Any

import keras
import public_api
import pytest
import tensorflow as tf

import tfhvd as hvd
import tfhvd.keras

# Examples for two ranks: a process set is of some of the ranks.
OF_TWO_RANKS = {
    "tfhvd.alltoall",
    "tfhvd.ProcessSet",
    "tfhvd.add_process_set",
    "tfhvd.get_process_set_ids_and_ranks",
    "tfhvd.process_set_included_op",
    "tfhvd.remove_process_set",
}
# What these print is the machine's affair.
OF_THE_MACHINE = {
    "tfhvd.cuda_built",
    "tfhvd.gloo_built",
    "tfhvd.gloo_enabled",
    "tfhvd.nccl_built",
}
# They start a job, or have files, of their own, and have tests of their own.
ELSEWHERE = {
    "tfhvd.data.RecordFiles",
    "tfhvd.run",
    "tfhvd.start_timeline",
    "tfhvd.stop_timeline",
}

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
TEXTS = {name: inspect.getdoc(thing) or "" for name, thing in public_api.public()}
NAMES = {name for name, text in TEXTS.items() if ">>>" in text}


class Checker(doctest.OutputChecker):
    """Where an example shows no output there may be any."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


def surroundings(name: str) -> dict[str, Any]:
    """What an example takes for granted: data, a model, an optimizer, and so on."""
    x, vector = tf.ones([8, 4]), tf.constant([1.0, 2.0])
    given: dict[str, Any] = {
        "accuracy": 0.5,
        "batches": hvd.data.Batches((x, tf.zeros([8, 1])), 4),
        "deadline": time.monotonic() + 3600,
        "dataset": tf.data.Dataset.from_tensor_slices((x, tf.zeros([8, 1]))).batch(4),
        "download_data": lambda: None,
        "epoch": 3,
        "hvd": tfhvd.keras if name.startswith("tfhvd.keras.") else hvd,
        "keras": keras,
        "my_batches": [1, 2],
        "my_files": ["a", "b"],
        "optimizer": keras.optimizers.SGD(0.01),
        "os": os,
        "rate": 0.01,
        "read_settings": dict,
        "seed": 42,
        "tf": tf,
        "tfhvd": tfhvd,
        "time": time,
        "train_step": lambda batch: None,
        "x": x,
        "y": tf.zeros([8, 1]),
        "mask": tf.constant([1.0, 0.0]),
        **dict.fromkeys(("bias", "hits", "kernel", "labels", "losses", "scores"), vector),
    }
    if "model" in TEXTS[name]:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), loss="mse", metrics=["mae"])
        model.save("model.keras")
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_sum(model(x))
        given.update(
            model=model, tape=tape, loss=loss, compute_loss=lambda: tf.reduce_sum(model(x))
        )
    if name in OF_TWO_RANKS - {"tfhvd.ProcessSet", "tfhvd.add_process_set"}:
        given["even"] = given["last"] = hvd.add_process_set([1])
    return given


def run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    given = surroundings(name)
    test = doctest.DocTestParser().get_doctest(TEXTS[name], given, name, None, None)
    if name in OF_THE_MACHINE:
        for example in test.examples:
            example.want = ""
    said: list[str] = []
    runner = doctest.DocTestRunner(checker=Checker(), verbose=False, optionflags=OPTIONS)
    runner.run(test, out=said.append)
    hvd.init()
    hvd.barrier()  # who leaves ends what others still do
    hvd.shutdown()  # with the process sets that were made
    hvd.init()
    assert not said, "".join(said)


@pytest.mark.thorough
@pytest.mark.variant
@pytest.mark.ranks(1)
@pytest.mark.parametrize("name", sorted(NAMES - OF_TWO_RANKS - ELSEWHERE))
def test_example(name, tmp_path, monkeypatch):
    run(name, tmp_path, monkeypatch)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("name", sorted(OF_TWO_RANKS))
def test_example_for_two_ranks(name, tmp_path, monkeypatch):
    run(name, tmp_path, monkeypatch)
