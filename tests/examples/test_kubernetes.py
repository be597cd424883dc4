"""The manifests for Kubernetes: against its schemas, and what no schema can say."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import dockerfile_steps
import kubernetes_validate
import mpi
import pytest
import yaml

from tfhvd.launch.options import parse
from tfhvd.launch.state.hosts import Host
from tfhvd.launch.state.job_spec import Job

FOLDER = mpi.ROOT / "examples" / "kubernetes"
SERVICE, JOB = list(yaml.safe_load_all((FOLDER / "job.yaml").read_text(encoding="utf-8")))
ELASTIC_SERVICE, ELASTIC_JOB = list(
    yaml.safe_load_all((FOLDER / "elastic-job.yaml").read_text(encoding="utf-8"))
)
MPI_JOB = yaml.safe_load((FOLDER / "mpijob.yaml").read_text(encoding="utf-8"))
LAUNCHER, WORKER = (MPI_JOB["spec"]["mpiReplicaSpecs"][name] for name in ("Launcher", "Worker"))
TEMPLATES = {
    "job": JOB["spec"]["template"],
    "elastic": ELASTIC_JOB["spec"]["template"],
    "launcher": LAUNCHER["template"],
    "worker": WORKER["template"],
}

# The first has successPolicy; the other is the newest whose schemas there are.
VERSIONS = ["1.31", kubernetes_validate.latest_version()]

HOSTFILE = "/etc/mpi/hostfile"  # where the operator mounts it

# Of the operator's API v2beta1.
MPI_JOB_FIELDS = {
    *("launcherCreationPolicy", "mpiImplementation", "mpiReplicaSpecs", "runLauncherAsWorker"),
    *("runPolicy", "slotsPerWorker", "sshAuthMountPath"),
}
RUN_POLICY_FIELDS = {
    *("activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "managedBy", "schedulingPolicy"),
    *("suspend", "ttlSecondsAfterFinished"),
}


def container(template: dict[str, Any]) -> dict[str, Any]:
    [found] = template["spec"]["containers"]
    return dict(found)


def script(template: dict[str, Any]) -> str:
    """What bash runs in a pod."""
    found = container(template)
    assert found["command"] == ["bash", "-c"]
    [text] = found["args"]
    return str(text)


def volume(template: dict[str, Any], path: str) -> dict[str, Any]:
    """What is mounted there."""
    mounts = container(template)["volumeMounts"]
    [name] = [mount["name"] for mount in mounts if mount["mountPath"] == path]
    [found] = [volume for volume in template["spec"]["volumes"] if volume["name"] == name]
    return dict(found)


def launched(text: str, **variables: str) -> Job:
    """What tfhvdrun reads in the last line of a script."""
    first, launcher, *words = dockerfile_steps.expand(text.splitlines()[-1], variables).split()
    assert [first, launcher] == ["exec", "tfhvdrun"], "signals reach it"
    return parse.parse([word.strip('"') for word in words], {})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", [SERVICE, JOB], ids=["service", "job"])
def test_schemas_of_kubernetes(manifest, version):
    kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", ["launcher", "worker"])
def test_pods_of_the_operator_fit_the_schema_of_a_pod(role, version):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": role}}
    kubernetes_validate.validate({**pod, **TEMPLATES[role]}, version, strict=True)


def test_a_wrong_field_is_noticed():
    wrong = {**JOB, "spec": {**JOB["spec"], "sucessPolicy": {}}}
    with pytest.raises(kubernetes_validate.ValidationError, match="sucessPolicy"):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_fields_of_the_operator():
    assert (MPI_JOB["apiVersion"], MPI_JOB["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    spec = MPI_JOB["spec"]
    assert set(spec) <= MPI_JOB_FIELDS and set(spec["runPolicy"]) <= RUN_POLICY_FIELDS
    assert spec["mpiImplementation"] in ("OpenMPI", "Intel", "MPICH")
    assert spec["launcherCreationPolicy"] in ("AtStartup", "WaitForWorkersReady")
    assert spec["runPolicy"]["cleanPodPolicy"] in ("All", "Running", "None")
    for replicas in (LAUNCHER, WORKER):
        assert set(replicas) == {"replicas", "restartPolicy", "template"}
        assert replicas["restartPolicy"] == "Never"


@pytest.mark.parametrize("role", ["job", "elastic", "launcher"])
def test_scripts_are_of_bash(role):
    subprocess.run(["bash", "-n", "-c", script(TEMPLATES[role])], check=True)


def run_script(folder: Path, text: str, **variables: str) -> list[str]:
    """Runs a pod's script with fakes for the programs that it calls; returns what they were told.

    The fake ssh fails the first time, as where a pod has not started yet.
    """
    log = folder / "log"
    bodies = {
        "ssh": 'n=$(grep -c "^ssh" "$LOG"); ((n > 1))',
        "sleep": "true",
        "tfhvdrun": "true",
        "tfhvd-sshd": "true",
    }
    for name, body in bodies.items():
        program = folder / name
        program.write_text(f'#!/bin/bash\necho "{name} $*" >>"$LOG"\n{body}\n')
        program.chmod(0o755)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    env = {"PATH": path, "LOG": str(log), **variables}
    subprocess.run(["bash", "-c", text], env=env, check=True, timeout=60)
    return log.read_text().splitlines()


def test_the_first_pod_waits_for_the_others_and_starts_the_job(tmp_path):
    program = "examples/keras_digits.py"
    said = run_script(tmp_path, script(TEMPLATES["job"]), JOB_COMPLETION_INDEX="0")
    ask = "ssh -n tfhvd-1.tfhvd true"
    start = f"tfhvdrun -H tfhvd-0:2,tfhvd-1.tfhvd:2 python {program}"
    assert said == [ask, "sleep 2", ask, start]


def test_the_other_pods_serve_ssh(tmp_path):
    said = run_script(tmp_path, script(TEMPLATES["job"]), JOB_COMPLETION_INDEX="1")
    assert said == ["tfhvd-sshd "]


def test_the_launcher_waits_for_all_workers_and_starts_the_job(tmp_path):
    hosts = tmp_path / "hostfile"
    hosts.write_text("a.b.svc slots=2\nc.d.svc slots=2\n")
    text = script(TEMPLATES["launcher"]).replace(HOSTFILE, str(hosts))
    said = run_script(tmp_path, text)
    first, second = "ssh -n a.b.svc true", "ssh -n c.d.svc true"
    start = f"tfhvdrun --hostfile {hosts} python examples/keras_digits.py"
    assert said == [first, "sleep 2", first, second, start]


def test_pods_have_the_names_that_the_job_uses():
    labels, spec = TEMPLATES["job"]["metadata"]["labels"], TEMPLATES["job"]["spec"]
    assert SERVICE["spec"]["selector"].items() <= labels.items()
    assert SERVICE["spec"]["clusterIP"] == "None"
    assert spec["subdomain"] == SERVICE["metadata"]["name"]
    [hosts] = re.findall(r"^hosts=(\S+)$", script(TEMPLATES["job"]), re.M)
    job = launched(script(TEMPLATES["job"]), hosts=hosts)
    name, pods = JOB["metadata"]["name"], JOB["spec"]["completions"]
    assert JOB["spec"]["completionMode"] == "Indexed" and JOB["spec"]["parallelism"] == pods
    # Kubernetes gives pod N the hostname JOB-N; the first is addressed by it, without the Service.
    expected = [f"{name}-0", *(f"{name}-{n}.{spec['subdomain']}" for n in range(1, pods))]
    assert [host.name for host in job.hosts] == expected
    assert job.num_proc == sum(host.slots for host in job.hosts) == 2 * pods
    assert len({host.slots for host in job.hosts}) == 1, "all pods have the same resources"


def test_the_job_ends_with_its_first_pod():
    assert JOB["spec"]["successPolicy"]["rules"] == [{"succeededIndexes": "0"}]
    assert JOB["spec"]["backoffLimit"] == 0
    branch = "if ((JOB_COMPLETION_INDEX > 0)); then exec tfhvd-sshd; fi"
    assert branch in script(TEMPLATES["job"]).splitlines()


def test_the_launcher_reads_the_operators_hosts(tmp_path):
    spec, workers = MPI_JOB["spec"], WORKER["replicas"]
    name, slots = f"{MPI_JOB['metadata']['name']}-worker", spec["slotsPerWorker"]
    names = [f"{name}-{number}.{name}.default.svc" for number in range(workers)]
    path = tmp_path / "hostfile"
    path.write_text("".join(f"{host} slots={slots}\n" for host in names))
    text = script(TEMPLATES["launcher"])
    assert text.count(HOSTFILE) == 2
    job = launched(text.replace(HOSTFILE, str(path)))
    assert job.hosts == tuple(Host(host, slots) for host in names)
    assert job.num_proc == workers * slots


@pytest.mark.parametrize("role", ["job", "elastic", "launcher"])
def test_the_program_is_in_the_image(role):
    [program] = re.findall(r" python (\S+)$", script(TEMPLATES[role]), re.M)
    assert (mpi.ROOT / program).is_file()


def image() -> dockerfile_steps.Stage:
    return dockerfile_steps.read(mpi.ROOT / "examples" / "Dockerfile")[-1]


def test_all_pods_have_the_image_and_its_user():
    assert len({container(template)["image"] for template in TEMPLATES.values()}) == 1
    [user] = [step.text for step in image().of("USER")]
    for template in TEMPLATES.values():
        context = template["spec"]["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == int(user.split(":")[0])


def test_keys_are_where_ssh_of_the_image_looks():
    [home] = [step.text for step in image().of("WORKDIR")]
    assert MPI_JOB["spec"]["sshAuthMountPath"] == f"{home}/.ssh"
    assert volume(TEMPLATES["job"], f"{home}/.ssh")["secret"]["secretName"] == "tfhvd-ssh"
    text = (FOLDER / "job.yaml").read_text(encoding="utf-8")
    assert "kubectl create secret generic tfhvd-ssh " in text
    assert "--from-file=id_ed25519 --from-file=authorized_keys=id_ed25519.pub" in text


def test_the_port_is_that_of_the_images_ssh():
    settings = (mpi.ROOT / "examples" / "ssh" / "client.conf").read_text(encoding="utf-8")
    [port] = map(int, re.findall(r"^ *Port (\d+)$", settings, re.M))
    assert [entry["port"] for entry in SERVICE["spec"]["ports"]] == [port]
    for role in ("job", "elastic", "worker"):
        [entry] = container(TEMPLATES[role])["ports"]
        assert (entry["name"], entry["containerPort"]) == ("ssh", port)
    assert container(TEMPLATES["worker"])["startupProbe"]["tcpSocket"]["port"] == "ssh"
    assert container(TEMPLATES["worker"])["command"] == ["tfhvd-sshd"]


@pytest.mark.parametrize("role", ["job", "elastic", "worker"])
def test_ranks_have_shared_memory(role):
    directory = volume(TEMPLATES[role], "/dev/shm")["emptyDir"]
    assert directory["medium"] == "Memory" and directory["sizeLimit"]


@pytest.mark.parametrize("role", TEMPLATES)
def test_ranks_have_time_to_save(role):
    grace = parse.parse(["-np", "1", "true"]).grace
    assert TEMPLATES[role]["spec"]["terminationGracePeriodSeconds"] > grace


def test_the_files_are_all():
    names = {path.name for path in FOLDER.iterdir()}
    assert names == {"job.yaml", "elastic-job.yaml", "mpijob.yaml"}


def test_the_elastic_job_finds_the_pods_that_are_ready(tmp_path):
    template = TEMPLATES["elastic"]
    said = run_script(tmp_path, script(template), JOB_COMPLETION_INDEX="1")
    assert said == ["tfhvd-sshd "]
    job = launched(script(template))
    spec = ELASTIC_JOB["spec"]
    assert job.pods == spec["completions"] == spec["parallelism"]
    assert (job.elastic, job.max_np) == (True, 2 * job.pods)
    assert template["spec"]["subdomain"] == ELASTIC_SERVICE["metadata"]["name"]
    assert ELASTIC_SERVICE["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    # A pod has a name as long as its sshd answers.
    assert "publishNotReadyAddresses" not in ELASTIC_SERVICE["spec"]
    assert container(template)["readinessProbe"]["tcpSocket"]["port"] == "ssh"
    assert spec["backoffLimit"] > 0, "a pod that is lost is replaced"
