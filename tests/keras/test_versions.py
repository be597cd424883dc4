"""A part of Keras or TensorFlow that is missing is named, with what to type."""

import re
import sys
import types

import pytest
import tensorflow as tf
from flavours import keras_of

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import private
from tfhvd.errors import UnavailableError

pytestmark = pytest.mark.ranks(1)

KERAS = (
    r"keras 3\.99 has no {}, which tfhvd needs to .*; tfhvd works with keras 3\.5 to 3\.15\. "
    r"Type: pip install 'keras>=3\.5,<3\.16', or install a newer tfhvd\."
)


class _OfKeras:
    def __init_subclass__(cls):
        cls.__module__ = "keras.src.future"


@pytest.fixture
def future(monkeypatch):
    """A Keras that has renamed what it keeps to itself."""
    keras = types.ModuleType("keras")
    keras.__version__ = "3.99"
    for place, name in (
        (keras, "Model"),
        (types.SimpleNamespace(), "BatchNormalization"),
        (types.SimpleNamespace(), "LossScaleOptimizer"),
    ):
        setattr(place, name, type(name, (_OfKeras,), {}))
        if place is not keras:
            kind = "layers" if name == "BatchNormalization" else "optimizers"
            setattr(keras, kind, place)
    monkeypatch.setitem(sys.modules, "keras", keras)
    return keras


def nothing(*arguments):
    raise AssertionError(arguments)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        (
            "Model.fit",
            lambda: keras_compat.surround("keras", "fit", "keep in step", nothing, nothing),
        ),
        (
            "Model.make_train_function",
            lambda: keras_compat.never_compile_training("keras", nothing, nothing),
        ),
        ("LossScaleOptimizer.check_finite", lambda: keras_compat.agree_on_finite(nothing)),
        (
            "BatchNormalization._moments",
            lambda: keras_compat.synchronize_batch_normalization(nothing),
        ),
    ],
)
@pytest.mark.usefixtures("future")
def test_what_is_replaced_in_keras(name, call):
    """tfhvd.keras does the last of them when it is imported."""
    with pytest.raises(UnavailableError, match=KERAS.format(re.escape(name))):
        call()


def test_what_a_user_inherits(future):
    class Own(type("SGD", (_OfKeras,), {})):
        pass

    for call, name in (
        (lambda o: private.require_hook(o, "_clip_gradients"), "_clip_gradients"),
        (private.trained_by, "_trainable_variables"),
        (private.iterations_of, "_iterations"),
    ):
        with pytest.raises(UnavailableError, match=KERAS.format(rf"Own\.{name}")):
            call(Own())
    keras = keras_of("keras")
    assert keras is future


def test_modules_of_tensorflow():
    of = private.of_module
    for module in ("tensorflow.python.ops.control_flow_util", "tensorflow.python.nowhere"):
        text = (
            rf"tensorflow {re.escape(tf.__version__)} has no {module}\.Nothing, which tfhvd "
            "needs to test it; tfhvd works with tensorflow 2.16 to 2.21. Type: pip install "
            "'tensorflow>=2.16"
        )
        with pytest.raises(UnavailableError, match=text):
            of(module, "Nothing", "test it")
    assert of(module.replace("nowhere", "ops.control_flow_util"), "GraphOrParentsInXlaContext", "")


def test_all_that_tfhvd_relies_on_is_there():
    """In the versions that the tests run with: what no other test would miss."""
    for package in ("keras", "tf_keras"):
        optimizer = keras_of(package).optimizers.SGD()
        hook = "_clip_gradients" if package == "keras" else "aggregate_gradients"
        private.require_hook(optimizer, hook)
        model = keras_of(package).Sequential([keras_of(package).layers.Dense(1)])
        assert not keras_compat.all_built(model)
