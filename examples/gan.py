"""Trains a generative adversarial network that writes digits: two models, two optimizers.

tfhvdrun -np 2 python examples/gan.py
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tfhvd.keras as hvd

BATCH = 64  # samples of all ranks together
EPOCHS = 60
NOISE = 16


def make_generator():
    return keras.Sequential(
        [
            keras.Input((NOISE,)),
            keras.layers.Dense(128, activation="leaky_relu"),
            keras.layers.Dense(128, activation="leaky_relu"),
            keras.layers.Dense(64, activation="sigmoid"),
        ]
    )


def make_critic():
    return keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(128, activation="leaky_relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(128, activation="leaky_relu"),
            keras.layers.Dense(1),
        ]
    )


class Gan(keras.Model):
    """A generator, and a critic that tells what it writes from what people wrote."""

    def __init__(self):
        super().__init__()
        self.generator, self.critic = make_generator(), make_critic()
        self.loss_of = keras.losses.BinaryCrossentropy(from_logits=True)

    def compile(self, of_generator, of_critic):
        super().compile()
        # Both reduce their gradients; `fit` finds them in the model.
        self.of_generator = hvd.DistributedOptimizer(of_generator)
        self.of_critic = hvd.DistributedOptimizer(of_critic)

    def call(self, noise):
        return self.generator(noise)

    def train_step(self, real):
        # Each rank draws noise of its own: the seeds of random layers and operations stay its own.
        noise = tf.random.normal((tf.shape(real)[0], NOISE))
        with tf.GradientTape() as tape:
            of_real = self.critic(real, training=True)
            of_false = self.critic(self.generator(noise), training=True)
            critic_loss = self.loss_of(tf.ones_like(of_real), of_real)
            critic_loss += self.loss_of(tf.zeros_like(of_false), of_false)
        variables = self.critic.trainable_variables
        self.of_critic.apply_gradients(zip(tape.gradient(critic_loss, variables), variables))

        with tf.GradientTape() as tape:
            of_false = self.critic(self.generator(noise, training=True), training=False)
            loss = self.loss_of(tf.ones_like(of_false), of_false)
        variables = self.generator.trainable_variables
        self.of_generator.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"critic": critic_loss, "generator": loss}


def main():
    """Trains, and returns 0 if what is written has the look of digits."""
    hvd.init()
    keras.utils.set_random_seed(hvd.rank())  # of the noise; the weights are rank 0's
    images = (load_digits().data / 16).astype("float32")
    dataset = hvd.shard(tf.data.Dataset.from_tensor_slices(images), shuffle=True, uneven="drop")
    dataset = dataset.batch(BATCH // hvd.size(), drop_remainder=True)

    gan = Gan()
    gan.compile(keras.optimizers.Adam(1e-3, beta_1=0.5), keras.optimizers.Adam(1e-3, beta_1=0.5))
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ]
    gan.fit(dataset, epochs=EPOCHS, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0)

    written = gan.predict(np.random.default_rng(0).normal(size=(500, NOISE)))
    # How far each is from the nearest digit, beside how far digits are from each other.
    distances = np.linalg.norm(written[:, None] - images[None, :500], axis=-1)
    between = np.linalg.norm(images[:500, None] - images[None, 500:1000], axis=-1)
    ratio = distances.min(axis=1).mean() / between.min(axis=1).mean()
    variety = written.std(axis=0).mean() / images.std(axis=0).mean()
    if hvd.rank() == 0:
        for row in written[0].reshape(8, 8):
            print("".join(" .:*#"[min(int(point * 5), 4)] for point in row))
        print(f"distance {ratio:.2f}, variety {variety:.2f} of that of digits")
    return 0 if ratio < 2.0 and variety > 0.4 else 1


if __name__ == "__main__":
    sys.exit(main())
