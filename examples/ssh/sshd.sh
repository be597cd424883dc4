#!/bin/bash
# Lets tfhvdrun in another container start ranks in this one: runs sshd, as the user who calls it.
#
#   tfhvd-sshd [PORT]        port 2222 if none is given
#
# Who has a key of ~/.ssh/authorized_keys may log in. Ends with SIGTERM, after the ranks.
set -euo pipefail

port=${1:-2222}
folder=$(mktemp -d)
# Each container makes its own key.
ssh-keygen -q -t ed25519 -N '' -f "$folder/host_key"

# StrictModes: Kubernetes mounts a Secret as a folder that everyone may write to, by its mode.
# SetEnv: commands find the same programs as in the container.
options=(
  -o PidFile=none
  -o UsePAM=no
  -o StrictModes=no
  -o PasswordAuthentication=no
  -o KbdInteractiveAuthentication=no
  -o "SetEnv=PATH=$PATH"
)
/usr/sbin/sshd -D -e -f /dev/null -p "$port" -h "$folder/host_key" "${options[@]}" &
server=$!

# Whether MPI's daemon runs here, of Open MPI or MPICH: the ranks are its children. A process that has
# ended, and for which nobody has waited, has no command line.
daemon_runs() {
  grep -qszE '(^|/)(prted|hydra_pmi_proxy)$' /proc/[0-9]*/cmdline
}

# `kubectl delete` and `docker stop` send SIGTERM to all containers. tfhvdrun then asks the ranks to
# save and end. They would be killed here if this process, the container's first, did not wait.
leave() {
  while daemon_runs; do sleep 1; done
  kill "$server"
}
trap leave TERM INT
wait "$server"
