"""tfhvd env: what a report of a bug needs, and nothing that is secret."""

from __future__ import annotations

import json

import pytest
from commands import tfhvd

from tfhvd.tools import env_variables

SECRETS = {
    "HOROVOD_SECRET_KEY": "hidden-1",
    "TFHVD_TOKEN": "hidden-2",
    "NCCL_PASSWORD": "hidden-3",
    "FI_KEY": "hidden-4",
    "AWS_SESSION_TOKEN": "hidden-5",
    "TFHVDRUN_TOKEN": "hidden-6",
    "TF_CONFIG_URL": "https://me:hidden-7@host.example/x",
}


def test_secrets_are_hidden():
    shown = env_variables.of_a_job(SECRETS)
    assert not any("hidden-" in value for value in shown.values())
    assert shown["TF_CONFIG_URL"] == "https://(hidden)@host.example/x"
    assert shown["FI_KEY"] == "(hidden)"
    assert "AWS_SESSION_TOKEN" not in shown and "TFHVDRUN_TOKEN" not in shown


@pytest.mark.parametrize(
    "name",
    [
        *("TFHVD_CYCLE_TIME", "HOROVOD_FUSION_THRESHOLD", "OMPI_MCA_btl", "NCCL_DEBUG"),
        *("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "XLA_FLAGS", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_what_matters_to_a_job(name):
    assert env_variables.of_a_job({name: "1"}) == {name: "1"}


@pytest.mark.parametrize("name", ["HOME", "TF_CLI_ARGS", "EDITOR", "SSH_AUTH_SOCK", "PATH"])
def test_what_is_nobodys_business(name):
    assert env_variables.of_a_job({name: "1"}) == {}


def test_the_users_folder():
    value = "/home/me/lib:/home/mean/lib:/home/me"
    shown = env_variables.of_a_job({"PYTHONPATH": value}, home="/home/me")
    assert shown == {"PYTHONPATH": "~/lib:/home/mean/lib:~"}


def test_settings_in_effect():
    rows = [("TFHVD_A", "HOROVOD_A", "1"), ("TFHVD_B", None, "2"), ("TFHVD_C", "HOROVOD_C", "3")]
    shown = {"HOROVOD_A": "7", "TFHVD_C": "8", "HOROVOD_C": "9"}
    assert env_variables.settings_in_effect(rows, shown) == [
        "TFHVD_A=7, from HOROVOD_A (default 1)",
        "TFHVD_C=8 (default 3)",
    ]


def test_for_people():
    done = tfhvd("env", **SECRETS, HOROVOD_CYCLE_TIME="2")
    assert done.returncode == 0 and not done.stderr, done
    assert "hidden-" not in done.stdout
    assert "  TFHVD_CYCLE_TIME=2, from HOROVOD_CYCLE_TIME (default " in done.stdout
    for part in ("tfhvd ", "backends", "versions", "machine", "settings in effect", "variables"):
        assert f"\n{part}" in f"\n{done.stdout}"
    for name in ("TensorFlow", "Keras", "numpy", "MPI", "glibc", "kernel", "mpirun", "processor"):
        assert f"\n  {name} " in done.stdout


def test_as_json():
    done = tfhvd("env", "--json", **SECRETS)
    assert done.returncode == 0 and "hidden-" not in done.stdout
    answer = json.loads(done.stdout)
    assert answer["versions"]["tfhvd"] and answer["memory"]["total"] > 0
    assert not {"host", "machine_id", "interfaces"} & answer.keys()
