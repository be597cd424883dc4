"""What a process finds out about itself and its machine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import surveys

from tfhvd.tools import facts, machine, nvml


def test_facts_survive_the_way_to_another_process():
    found = facts.gather({"CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "3"})
    assert facts.from_json(json.loads(json.dumps(found.to_json()))) == found
    full = surveys.change(
        surveys.job("a"), 0, gpus=(nvml.Gpu("H100", "GPU-1", 2, 1, "550"),), infiniband=("mlx5_0",)
    )[0]
    assert facts.from_json(json.loads(json.dumps(full.to_json()))) == full


def test_of_this_process():
    found = facts.gather({"OMP_NUM_THREADS": "3"})
    assert found.host == os.uname().nodename and found.machine_id.startswith(found.host + " ")
    assert set(found.cores.allowed) == os.sched_getaffinity(0)
    assert found.cores.threads == {"OMP_NUM_THREADS": "3"}
    assert 0 < found.memory.available <= found.memory.total
    assert found.versions["tfhvd"] and found.versions["TensorFlow"] and found.versions["MPI"]
    assert "core " in found.build and not found.problems
    assert found.visible_gpus is None
    assert all(i.name != "lo" and "/" in i.network for i in found.interfaces)


def test_what_cannot_be_read_is_empty(monkeypatch):
    monkeypatch.setattr(machine, "_read", lambda path: "")
    memory = machine.memory()
    assert (memory.total, memory.available, memory.limit) == (0, 0, None)


def test_the_least_limit_of_memory_counts(monkeypatch):
    texts = {"/proc/self/cgroup": "0::/a/b", "b": "max", "a": "5000", "cgroup": "9000"}
    monkeypatch.setattr(
        machine,
        "_read",
        lambda path: texts.get(str(path), texts.get(Path(path).parent.name, "")),
    )
    assert machine._memory_limit() == 5000


FAKE_NVML = """
#include <cstdint>
#include <cstdio>
#include <cstring>
extern "C" {
int nvmlInit_v2() { return RESULT; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 2; return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned) { std::strcpy(text, "550.54"); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  *handle = reinterpret_cast<void*>(uintptr_t{0x7f0000000000} + index);
  return 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned) { std::strcpy(text, "H100"); return 0; }
int nvmlDeviceGetUUID(void* handle, char* text, unsigned) {
  std::sprintf(text, "GPU-%d", static_cast<int>(reinterpret_cast<uintptr_t>(handle) & 15));
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = 80ull << 30;
  memory[1] = 79ull << 30;
  return 0;
}
}
"""


@pytest.mark.parametrize("result", [0, 9])
def test_gpus_by_the_library_of_a_driver(tmp_path, result):
    library = tmp_path / "libfake_nvml.so"
    line = ["g++", "-shared", "-fPIC", f"-DRESULT={result}", "-x", "c++", "-", "-o", library]
    subprocess.run(line, input=FAKE_NVML, text=True, check=True)
    found = nvml.find(str(library))
    assert found == tuple(
        nvml.Gpu("H100", f"GPU-{n}", 80 << 30, 79 << 30, "550.54") for n in range(2) if not result
    )


def test_no_driver():
    assert nvml.find("libnothing-nvml.so.1") == ()
