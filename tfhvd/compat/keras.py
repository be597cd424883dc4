"""The code that depends on the version of Keras 3 or of tf_keras.

Every function here names the versions that need it, so that it can be deleted with them. The module
imports neither Keras: it finds them through the user's objects. For training see training.py, for
access to private parts private.py.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Optional

from tfhvd.compat import private
from tfhvd.compat.variables import tf_variable

if TYPE_CHECKING:
    from typing import TypeGuard

    import tensorflow as tf

    from tfhvd.compat.types import (
        CallbackList,
        Callbacks,
        Gradient,
        Instead,
        Layer,
        Model,
        Optimizer,
        Variable,
    )

    # (layer, inputs, axes, mask) -> mean and variance, or None
    Moments = Callable[
        [Layer, tf.Tensor, Sequence[int], Optional[tf.Tensor]],
        Optional[tuple[tf.Tensor, tf.Tensor]],
    ]

KERAS_3 = "keras"
TF_KERAS = "tf_keras"
_KERAS = (KERAS_3, TF_KERAS)


def keras_package(thing: object) -> str | None:
    """Returns the Keras of an object's class: "keras" (Keras 3), "tf_keras", or None.

    The base classes decide, never the imported modules or TF_USE_LEGACY_KERAS.
    """
    for cls in type(thing).__mro__:
        root = cls.__module__.partition(".")[0]
        if root in _KERAS:
            return root
    return None


def keras_of(thing: object) -> ModuleType:
    """Returns the module of an object's Keras: see `keras_package`."""
    return sys.modules[keras_package(thing) or KERAS_3]


def imported_keras() -> list[str]:
    """Lists the Keras packages that the program has imported."""
    return [package for package in _KERAS if hasattr(sys.modules.get(package), "Model")]


def all_built(model: Model) -> bool:
    """Returns whether every layer of a Keras model has made its variables."""
    layers = private.attribute(model, "_flatten_layers", "see whether it is built")
    return bool(model.built) and all(layer.built for layer in layers())


def build_optimizer(optimizer: Optimizer, variables: Iterable[Variable]) -> None:
    """Makes the optimizer's variables (slots and counters), if they do not exist yet."""
    if hasattr(optimizer, "_create_all_weights"):  # tf_keras.optimizers.legacy
        optimizer._create_all_weights(list(variables))
    elif not getattr(optimizer, "built", False):
        optimizer.build(list(variables))


def optimizer_variables(optimizer: Optimizer | None) -> list[Variable]:
    """Lists an optimizer's variables, including the state of a loss scale."""
    if optimizer is None:
        return []
    variables = optimizer.variables
    found = list(variables() if callable(variables) else variables)
    # tf_keras.mixed_precision.LossScaleOptimizer lists only the inner optimizer's variables.
    scale = getattr(optimizer, "_loss_scale", None)
    found.extend(getattr(scale, "_weights", {}).values())
    return found


def momentum_variables(optimizer: Optimizer) -> list[Variable]:
    """Lists the variables in which an optimizer sums up past steps, including the learning rate.

    SGD and RMSprop have such variables. Adam and similar optimizers sum up gradients instead, which
    do not contain the learning rate.
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not getattr(optimizer, "momentum", None):
        return []
    names = {
        cls.__name__
        for cls in type(optimizer).__mro__
        if cls.__module__.partition(".")[0] in _KERAS
    }
    if not names & {"SGD", "RMSprop"}:
        return []
    if hasattr(
        optimizer, "_create_all_weights"
    ):  # tf_keras.optimizers.legacy names its slots by variable.
        return [v for v in optimizer.variables() if v.name.partition(":")[0].endswith("/momentum")]
    return list(getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", []))


def model_state(model: Model) -> list[Variable]:
    """Lists a model's weights, trained or not, without metrics and random seeds.

    The list also omits weights of tf_keras (2.16 to 2.21 at least) that are not arrays, or whose
    shape may differ between ranks: tables of lookups, and summaries of the data of `adapt`.
    """
    weights = [weight for weight in model.weights if hasattr(tf_variable(weight), "assign")]
    return [weight for weight in weights if tf_variable(weight).shape.is_fully_defined()]


def defined_in(optimizer: Optimizer, method: str) -> str:
    """Returns the name of the class that defines an optimizer's method, "" if there is none."""
    for cls in type(optimizer).__mro__:
        if method in vars(cls):
            return cls.__name__
    return ""


def is_legacy_optimizer(optimizer: Optimizer) -> bool:
    """Returns whether an optimizer is from tf_keras.optimizers.legacy; Keras 3 has no such ones."""
    return keras_package(optimizer) == TF_KERAS and hasattr(optimizer, "_create_all_weights")


def has_own_train_step(model: Model) -> bool:
    """Returns whether a model of either Keras trains by a `train_step` that its user wrote."""
    own = vars(model).get("train_step")
    own = private.original_of(own)  # within `fit`
    if own is not None and getattr(own, "__func__", None) is not type(model).train_step:
        return True
    owner = next((cls for cls in type(model).__mro__ if "train_step" in vars(cls)), None)
    return owner is not None and owner.__module__.partition(".")[0] not in _KERAS


def is_keras_optimizer(thing: object) -> bool:
    """Returns whether an object is an optimizer of either Keras."""
    if type(thing).__module__ == "builtins":  # most objects in a model; `fit` asks often
        return False
    packages = [sys.modules[package] for package in imported_keras()]
    kinds = [package.optimizers.Optimizer for package in packages]
    kinds += [p.optimizers.legacy.Optimizer for p in packages if p.__name__ == TF_KERAS]
    return isinstance(thing, tuple(kinds))


def never_compile_training(
    package: str, applies_to: Callable[[Model], bool], say: Callable[[str], None]
) -> None:
    """Makes Keras train without XLA the models that `applies_to` accepts, with a message.

    This is for GPUs of other vendors than NVIDIA, and for a build without XLA. Keras 3 compiles the
    training step by default (since 3.15 only on machines with an accelerator, before 3.15 always),
    and both Keras take `jit_compile=True`. In neither of them can an optimizer refuse, so the
    method is wrapped. A second call does nothing.
    """
    owner = private.owner_of(sys.modules[package].Model, "make_train_function", "train uncompiled")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def make_train_function(self: Model, force: bool = False) -> Any:
            if not self.run_eagerly and self.jit_compile and applies_to(self):
                self.jit_compile = False
                say(
                    "The training step runs with jit_compile=False: XLA compiles tfhvd's "
                    "collectives for CPUs and NVIDIA's GPUs, where TensorFlow's headers have XLA."
                )
            return original(self, force)

        return make_train_function

    private.replace_method(owner, "make_train_function", make)


def surround(
    package: str,
    method: str,
    use: str,
    applies_to: Callable[[Model], bool],
    around: Callable[[Model, dict[str, Any]], contextlib.AbstractContextManager[Instead | None]],
) -> None:
    """Makes Keras run a method of the models that `applies_to` accepts within `around`.

    The methods are wrapped because Keras offers no other way: it does not call optimizers when
    `fit` begins, no callback can run both before and after all other callbacks, and callbacks do
    not decide what is shown. A second call does nothing.

    Args:
        package: "keras" or "tf_keras", imported.
        method: the method of its models: "fit", "evaluate" or "predict".
        use: the purpose, as in "keep the ranks in step".
        applies_to: takes a model.
        around: takes the model and the arguments of the method by name, which it may change. If it
            yields a function, this function is called with the method, which then takes no
            arguments, and returns the result.
    """
    owner = private.owner_of(sys.modules[package].Model, method, use)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def call(self: Model, *args: Any, **kwargs: Any) -> Any:
            if not applies_to(self):
                return original(self, *args, **kwargs)
            given = signature.bind(self, *args, **kwargs)
            with around(self, given.arguments) as instead:
                run = functools.partial(original, *given.args, **given.kwargs)
                return run() if instead is None else instead(run)

        return call

    private.replace_method(owner, method, make)


def is_callback_list(callbacks: Callbacks) -> TypeGuard[CallbackList]:
    """Returns whether callbacks are in the container that either Keras makes in `fit`."""
    packages = [sys.modules[package] for package in imported_keras()]
    return isinstance(callbacks, tuple(package.callbacks.CallbackList for package in packages))


def is_callback(thing: object) -> bool:
    """Returns whether an object is a callback of either Keras, or of a subclass."""
    packages = [sys.modules[package] for package in imported_keras()]
    return isinstance(thing, tuple(package.callbacks.Callback for package in packages))


def is_checkpoint(callback: object) -> bool:
    """Returns whether a callback of either Keras saves models or their weights."""
    kinds = [sys.modules[package].callbacks for package in imported_keras()]
    return isinstance(
        callback, tuple(k for c in kinds for k in (c.ModelCheckpoint, c.BackupAndRestore))
    )


def reads_metrics(callback: object) -> bool:
    """Returns whether a callback of either Keras, or of a subclass, reads the metrics of epochs."""
    names = ("EarlyStopping", "ReduceLROnPlateau", "ModelCheckpoint", "CSVLogger", "TensorBoard")
    kinds = [sys.modules[package].callbacks for package in imported_keras()]
    return isinstance(callback, tuple(getattr(k, name) for k in kinds for name in names))


def variables_by_now(model: Model) -> list[Variable]:
    """Lists the present variables of a model; a tf_keras model has none before it is built."""
    try:
        return list(model.variables)
    except ValueError:
        return []


def go_on_with(callback: Any, history: Any) -> None:
    """Lets a callback of either Keras continue the files of a failed rank's callback.

    Args:
        callback: the callback, which will append to files, and learn the best metric so far.
        history: `fit`'s history of the epochs so far; None for no history.
    """
    if hasattr(callback, "append"):
        callback.append = True
    if not getattr(callback, "save_best_only", False) or history is None:
        return
    for value in history.history.get(callback.monitor, ()):
        if private.is_better(callback, value):
            callback.best = value


def agree_on_finite(agree: Callable[[Optimizer, tf.Tensor], tf.Tensor]) -> None:
    """Makes Keras 3's LossScaleOptimizer call `agree(optimizer, finite)` before it skips an update.

    Keras 3 checks the gradients of this rank before it calls the inner optimizer, which reduces
    them. If the ranks decided differently, some would wait in the collectives without the others.
    tf_keras reduces before the check and needs no change. A second call does nothing.
    """
    optimizer_class = sys.modules[KERAS_3].optimizers.LossScaleOptimizer
    private.owner_of(optimizer_class, "check_finite", "skip updates on all ranks alike")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def check_finite(self: Optimizer, grads: Sequence[Gradient]) -> tf.Tensor:
            return agree(self, original(self, grads))

        return check_finite

    private.replace_method(optimizer_class, "check_finite", make)


def synchronize_batch_normalization(moments: Moments) -> None:
    """Makes `BatchNormalization(synchronized=True)` of either Keras use `moments` over the ranks.

    Both Keras ask tf.distribute for other replicas, which has none in a job of ranks: without this,
    they would silently normalize by the batch of this rank. A call covers the Keras packages that
    are imported; a later call covers more of them.

    Args:
        moments: a function of (layer, inputs, axes, mask) that returns mean and variance without
            the reduced dimensions, or None if those of this rank's batch are right.
    """
    for package, method in ((KERAS_3, "_moments"), (TF_KERAS, "_sync_calculate_mean_and_var")):
        layers = getattr(sys.modules.get(package), "layers", None)
        if layers is None:
            continue
        owner = private.owner_of(
            layers.BatchNormalization, method, "normalize over the batches of all ranks"
        )
        make = _moments_of_keras_3 if package == KERAS_3 else _moments_of_tf_keras
        private.replace_method(owner, method, functools.partial(make, moments))


def _moments_of_keras_3(moments: Moments, original: Callable[..., Any]) -> Callable[..., Any]:
    def _moments(self: Layer, inputs: tf.Tensor, mask: tf.Tensor | None) -> Any:
        found = moments(self, inputs, self._reduction_axes, mask) if self.synchronized else None
        return original(self, inputs, mask) if found is None else found

    return _moments


def _moments_of_tf_keras(moments: Moments, original: Callable[..., Any]) -> Callable[..., Any]:
    import tensorflow as tf

    def _sync_calculate_mean_and_var(
        self: Layer,
        x: tf.Tensor,
        reduction_axes: Sequence[int],
        keep_dims: bool,
        mask: tf.Tensor | None = None,
    ) -> Any:
        wide = tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x
        found: Iterable[tf.Tensor] | None = moments(self, wide, reduction_axes, mask)
        if found is None:
            return original(self, x, reduction_axes, keep_dims, mask=mask)
        if keep_dims:
            shape = [1 if i in reduction_axes else -1 for i in range(x.shape.rank)]
            found = [tf.reshape(value, shape) for value in found]
        return tuple(tf.cast(value, x.dtype) for value in found)

    return _sync_calculate_mean_and_var


def samples_seen(model: Model) -> float | None:
    """Returns the number of samples since the last reset of a model's metrics; None if unknown.

    Keras 3 and tf_keras weight the loss of each batch by its samples.
    """
    metrics = getattr(model, "metrics", ())
    counts = [m.count for m in metrics if m.name == "loss" and hasattr(m, "count")]
    # In mixed precision, float() does not accept the variables of tf_keras.
    return float(tf_variable(counts[0]).numpy()) if counts else None


def steps_of_a_call(model: Model) -> int:
    """Returns the number of steps in one call of the train function: `steps_per_execution`.

    In tf_keras (2.16 to 2.21 at least) it is a private variable.
    """
    steps = getattr(model, "steps_per_execution", None) or getattr(
        model, "_steps_per_execution", None
    )
    return int(steps) if steps is not None else 1
