"""Trains on digits that are read from files by tf.data: each rank reads files of its own.

tfhvdrun -np 2 python examples/data_pipeline.py
"""

import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tfhvd.keras as hvd

BATCH = 32  # samples per rank and step
EPOCHS = 12
FILES = 8


def write_files(folder):
    """Writes TFRecord files, as whoever prepares data would; gives what is kept for the test."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    train, test = order[:1437], order[1437:]
    for number, part in enumerate(np.array_split(train, FILES)):
        with tf.io.TFRecordWriter(str(folder / f"part-{number}.tfrecord")) as writer:
            for index in part:
                image = digits.images[index].astype("uint8").tobytes()
                features = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                    "digit": tf.train.Feature(
                        int64_list=tf.train.Int64List(value=[digits.target[index]])
                    ),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
    return (digits.images[test, ..., np.newaxis] / 16).astype("float32"), digits.target[test]


def parse(record):
    found = tf.io.parse_single_example(
        record,
        {
            "image": tf.io.FixedLenFeature([], tf.string),
            "digit": tf.io.FixedLenFeature([], "int64"),
        },
    )
    image = tf.reshape(tf.io.decode_raw(found["image"], tf.uint8), (8, 8, 1))
    return tf.cast(image, tf.float32) / 16, found["digit"]


def pipeline(folder):
    """Reads this rank's files: other ones in each epoch, and their records in another order."""
    names = sorted(str(path) for path in folder.glob("*.tfrecord"))
    files = hvd.shard(tf.data.Dataset.from_tensor_slices(names), shuffle=True)
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=4)
    # From here on each rank has elements of its own, and may do with them what it likes.
    records = records.shuffle(500).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return records.batch(BATCH).prefetch(tf.data.AUTOTUNE)


def main():
    """Trains, and returns 0 if the model can read."""
    hvd.init()
    with tempfile.TemporaryDirectory() as name:  # each rank's own; real data are there already
        x_test, y_test = write_files(Path(name))
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
                keras.layers.Conv2D(64, 3, padding="same", strides=2, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(10),
            ]
        )
        learning_rate = hvd.scaled_lr(1e-3, "sqrt")
        model.compile(
            hvd.DistributedOptimizer(keras.optimizers.Adam(learning_rate)),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        callbacks = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
        ]
        model.fit(pipeline(Path(name)), epochs=EPOCHS, callbacks=callbacks)

    x_test, y_test = hvd.shard((x_test, y_test))
    correct = np.sum(np.argmax(model.predict(x_test), axis=-1) == y_test)
    accuracy = int(hvd.allreduce(correct, op=hvd.Sum)) / int(hvd.allreduce(len(y_test), op=hvd.Sum))
    if hvd.rank() == 0:
        print(f"test accuracy of {hvd.size()} rank(s): {accuracy:.4f}")
    return 0 if accuracy >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
