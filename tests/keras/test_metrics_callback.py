"""MetricsCallback: TensorBoard gets what each epoch has added, from the first rank."""

import pytest
import tensorflow as tf
from flavours import data, in_both_keras, keras_of, make_model

import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(1, 2)
EPOCHS, STEPS = 3, 4


def scalars(folder):
    """The values of each name that TensorBoard would show."""
    found = {}
    for file in sorted(folder.glob("events*")):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    found.setdefault(value.tag, []).append(float(tf.make_ndarray(value.tensor)))
    return found


@in_both_keras
def test_the_first_rank_writes_what_each_epoch_has_added(package, tmp_path):
    keras = keras_of(package)
    model = make_model(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    x, y = data(seed=hvd.rank())
    folder = tmp_path / str(hvd.rank())
    before = hvd.metrics()
    callback = hvd.callbacks.MetricsCallback(folder)
    model.fit(x, y, batch_size=2, epochs=EPOCHS, verbose=0, callbacks=[callback])
    after = hvd.metrics()
    if hvd.rank() > 0:
        assert not folder.exists()
        return
    shown = scalars(folder / "tfhvd")
    assert len(shown["tfhvd/bytes"]) == EPOCHS
    assert sum(shown["tfhvd/bytes"]) <= after.bytes - before.bytes
    gradients = sum(4 * tf.size(variable).numpy() for variable in model.trainable_variables)
    if hvd.size() > 1:
        assert min(shown["tfhvd/bytes"]) >= STEPS * gradients
    assert "tfhvd/unlocked/another_rank" in shown
    assert f"tfhvd/waits/rank_{hvd.size() - 1}" in shown
    assert "tfhvd/waits/unknown" in shown
