"""Shims for the modules of Horovod, and what finds them where Python looks for Horovod.

Every module of Horovod that Python code for TensorFlow imports has a shim here, which looks
each name up in one of tfhvd's modules. A name that tfhvd lacks raises an error (AttributeError, or
ImportError from an import statement) which says what to use instead.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence

from tfhvd.launch.placement import legacy_keras

# The release of Horovod whose API is followed: what `horovod.__version__` says.
HOROVOD_VERSION = "0.28.1"

# Module of Horovod -> the modules of tfhvd in which its names are looked up, in that order.
MODULES: dict[str, tuple[str, ...]] = {
    "horovod": ("tfhvd",),
    "horovod.runner": ("tfhvd",),
    "horovod.common": ("tfhvd",),
    "horovod.common.basics": ("tfhvd",),
    "horovod.common.exceptions": ("tfhvd",),
    "horovod.common.process_sets": ("tfhvd",),
    "horovod.common.util": ("tfhvd",),
    "horovod.tensorflow": ("tfhvd",),
    "horovod.tensorflow.compression": ("tfhvd.compression",),
    "horovod.tensorflow.elastic": ("tfhvd.elastic",),
    "horovod.tensorflow.functions": ("tfhvd",),
    "horovod.tensorflow.mpi_ops": ("tfhvd",),
    "horovod.tensorflow.sync_batch_norm": ("tfhvd",),
    "horovod.tensorflow.keras": ("tfhvd.keras", "tfhvd"),
    "horovod.tensorflow.keras.callbacks": ("tfhvd.keras.callbacks",),
    "horovod.tensorflow.keras.elastic": ("tfhvd.elastic",),
    "horovod.keras": ("tfhvd.keras", "tfhvd"),
    "horovod.keras.callbacks": ("tfhvd.keras.callbacks",),
    "horovod.keras.elastic": ("tfhvd.elastic",),
}

# Names that tfhvd spells otherwise -> (module of tfhvd, name).
_SPELT = {
    "HorovodInternalError": ("tfhvd", "TfhvdError"),
    "HostsUpdatedInterrupt": ("tfhvd.elastic", "HostsUpdatedInterrupt"),
    "elastic_run": ("tfhvd.elastic", "run"),
    "num_rank_is_power_2": ("tfhvd", "check_num_rank_power_of_2"),
}

# The collectives of these modules have gradients as Horovod scales them, see collectives.py.
_WITH_GRADIENTS = ("horovod.tensorflow", "horovod.tensorflow.mpi_ops")
_RESCALED = frozenset(
    ["allgather", "broadcast", "grouped_allgather", "grouped_reducescatter", "reducescatter"]
)

# Names of Horovod that tfhvd lacks -> what to use.
_ADVICE = {
    "check_extension": "hvd.build_info(), which says what there is",
    "gpu_available": "tf.config.list_physical_devices('GPU')",
    "is_gpu_available": "tf.config.list_physical_devices('GPU')",
    "horovod.mxnet": "Horovod itself: tfhvd is for TensorFlow and Keras",
    "horovod.ray": "tfhvd.ray.run(func, num_workers=N), which takes the place of its executors",
    "horovod.spark": (
        "tfhvd.spark.run(fn, num_proc=N), which takes the place of horovod.spark.run; its "
        "estimators and run_elastic are in Horovod alone"
    ),
    "horovod.torch": "Horovod itself, or torch.distributed: tfhvd is for TensorFlow and Keras",
    "horovod.tensorflow.data": (
        "tf.data.Dataset.shard(hvd.size(), hvd.rank()), or TensorFlow's own tf.data service"
    ),
    "mpi_lib": "the functions of `hvd`",
    "mpi_lib_v2": "the functions of `hvd`",
}


def install() -> None:
    """Puts the shims in the place of Horovod, for this process.

    Calling it again does nothing.

    Raises:
        ImportError: if Horovod itself has been imported already.

    Example:
        >>> import tfhvd.as_horovod
        >>> import horovod.tensorflow as hvd
        >>> hvd.init()
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if "horovod" in sys.modules:
        raise ImportError(
            "Horovod itself was imported before tfhvd.as_horovod; import tfhvd.as_horovod first, "
            "or start the program with tfhvdrun --as-horovod."
        )
    legacy_keras.choose_here()
    sys.meta_path.insert(0, _Finder())
    importlib.import_module("horovod")


class _Shim(types.ModuleType):
    """A module of Horovod, whose names are tfhvd's."""

    def __getattr__(self, name: str) -> object:
        if name == "__all__":
            return [public for public in dir(self) if not public.startswith("_")]
        if name.startswith("__"):  # Python's own questions
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if f"{self.__name__}.{name}" in MODULES:
            return importlib.import_module(f"{self.__name__}.{name}")
        home, its_name = _SPELT.get(name, (None, name))
        if name in _RESCALED and self.__name__ in _WITH_GRADIENTS:
            home = "tfhvd.horovod_alias.collectives"
        for module in (home,) if home else MODULES[self.__name__]:
            try:
                return getattr(importlib.import_module(module), its_name)
            except AttributeError:
                continue
        raise AttributeError(_lacking(self.__name__, name))

    def __dir__(self) -> list[str]:
        names = set(self.__dict__)
        for module in MODULES[self.__name__]:
            names.update(_names_in(module))
        return sorted(names)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of the table, and refuses every other one of Horovod with an advice."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname.partition(".")[0] != "horovod":
            return None
        if fullname not in MODULES:
            # `from horovod.tensorflow import x` comes here too, where x is no name of the module:
            # this is the one place where its error can say more than that.
            module, _, name = fullname.rpartition(".")
            raise ImportError(_lacking(module, name), name=fullname)
        # A package: so that Python asks here for names that it does not find in it.
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Shim(spec.name, f"tfhvd in the place of {spec.name}: see tfhvd.as_horovod.")

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ == "horovod":
            module.__dict__["__version__"] = HOROVOD_VERSION


def _lacking(module: str, name: str) -> str:
    """Says that a name is not there, and what to use."""
    text = f"tfhvd, which takes the place of Horovod here, has no {module}.{name}."
    advice = _ADVICE.get(name) or _ADVICE.get(f"{module}.{name}")
    if advice is not None:
        return f"{text} Use: {advice}."
    known = {known for home in MODULES.get(module, ()) for known in _names_in(home)}
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" The nearest name is {near[0]}." if near else ""
    return f"{text}{hint} docs/migrating.md of tfhvd says what differs from Horovod."


def _names_in(module: str) -> list[str]:
    there = importlib.import_module(module)
    return list(getattr(there, "__all__", None) or vars(there))
