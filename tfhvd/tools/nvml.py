"""Which GPUs the driver shows, by NVIDIA's management library: no context is made on any."""

from __future__ import annotations

import ctypes
import dataclasses

_TEXT = 96  # bytes of the longest name


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes:
        name: as in "NVIDIA H100 80GB HBM3".
        uuid: by which no other GPU goes.
        memory: in bytes.
        free: of that.
        driver: the version of the driver.
    """

    name: str = ""
    uuid: str = ""
    memory: int = 0
    free: int = 0
    driver: str = ""


class _MemoryInfo(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def find(library: str = "libnvidia-ml.so.1") -> tuple[Gpu, ...]:
    """Returns all GPUs of the machine, in the driver's order; none if there is no driver."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return ()
    if nvml.nvmlInit_v2() != 0:
        return ()
    try:
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return ()
        text = ctypes.create_string_buffer(_TEXT)
        nvml.nvmlSystemGetDriverVersion(text, _TEXT)
        return tuple(_gpu(nvml, index, _text(text)) for index in range(count.value))
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: ctypes.CDLL, index: int, driver: str) -> Gpu:
    handle = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != 0:
        return Gpu(driver=driver)
    name, uuid = (ctypes.create_string_buffer(_TEXT) for _ in range(2))
    nvml.nvmlDeviceGetName(handle, name, _TEXT)
    nvml.nvmlDeviceGetUUID(handle, uuid, _TEXT)
    memory = _MemoryInfo()
    nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    return Gpu(_text(name), _text(uuid), memory.total, memory.free, driver)


def _text(buffer: ctypes.Array[ctypes.c_char]) -> str:
    return buffer.value.decode(errors="replace")
