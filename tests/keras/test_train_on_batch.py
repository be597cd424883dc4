"""Training batch by batch says where the ranks train apart."""

import pytest
from flavours import data, in_both_keras, keras_of, make_model

import tfhvd as hvd
import tfhvd.keras

pytestmark = pytest.mark.ranks(2)


def compiled(package, optimizer):
    model = make_model(keras_of(package))
    model.compile(optimizer, loss="mse")
    return model


@in_both_keras
def test_a_plain_optimizer_is_told_once(package, caplog):
    model = compiled(package, "adam")
    for _ in range(2):
        model.train_on_batch(*data(seed=hvd.rank()))
    assert caplog.text.count("train_on_batch on rank") == 1, caplog.text
    assert "Adam is not a distributed optimizer" in caplog.text
    assert "hvd.DistributedOptimizer" in caplog.text


@in_both_keras
def test_a_distributed_optimizer_is_not_told(package, caplog):
    optimizer = hvd.DistributedOptimizer(keras_of(package).optimizers.SGD(0.1))
    compiled(package, optimizer).train_on_batch(*data(seed=hvd.rank()))
    assert "train_on_batch" not in caplog.text


@pytest.mark.ranks(1)
def test_one_rank_trains_as_it_likes(caplog):
    compiled("keras", "adam").train_on_batch(*data(seed=0))
    assert "train_on_batch" not in caplog.text
