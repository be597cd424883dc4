"""Makes a repository of what tfhvd is built against: TensorFlow, pybind11, MPI and Python's headers.

They are those of the Python that PYTHON_BIN_PATH names, else of `python3` on PATH; MPI is that of $MPICC,
else of the mpicc beside that Python, else of the one on PATH. The repository is made anew when one of
these variables changes.
"""

_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_import", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "python_headers",
    hdrs = glob(["python/**/*.h"]),
    includes = ["python"],
)

cc_library(
    name = "pybind11",
    hdrs = glob(["pybind11/**/*.h"]),
    includes = ["pybind11"],
    deps = [":python_headers"],
)

# The headers are many and never change within one TensorFlow: they are found by path, not listed one by one.
cc_library(
    name = "tensorflow",
    srcs = [
        "libtensorflow_cc.so.2",
        "libtensorflow_framework.so.2",
    ],
    hdrs = glob(["tensorflow_include/**"]),
    defines = [{tensorflow_defines}],
    includes = ["tensorflow_include"],
)

cc_library(
    name = "mpi",
    hdrs = glob(["mpi*/**/*.h"]),
    defines = ["OMPI_SKIP_MPICXX", "MPICH_SKIP_MPICXX"],
    includes = [{mpi_includes}],
    linkopts = [{mpi_linkopts}],
)
"""

_SETTINGS = """
# What the probe found, for the BUILD file.
EXTENSION_SUFFIX = "{EXTENSION_SUFFIX}"
"""

def _quoted(words):
    return ", ".join(['"%s"' % word for word in words])

def _python_configure_impl(ctx):
    python = ctx.os.environ.get("PYTHON_BIN_PATH") or ctx.which("python3")
    probe = ctx.execute([python, ctx.path(Label("//third_party:probe.py"))])
    if probe.return_code != 0:
        fail("%s cannot say what tfhvd is built against:\n%s" % (python, probe.stderr))
    facts = {}
    for line in probe.stdout.splitlines():
        name, _, value = line.partition("=")
        facts[name] = value
    ctx.symlink(facts["PYTHON_HEADERS"], "python")
    ctx.symlink(facts["PYBIND11_HEADERS"], "pybind11")
    ctx.symlink(facts["TENSORFLOW"] + "/include", "tensorflow_include")
    for library in ["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"]:
        ctx.symlink(facts["TENSORFLOW"] + "/" + library, library)
    mpi_includes = []
    for folder in [folder for folder in facts["MPI_HEADERS"].split(":") if folder]:
        name = "mpi%d" % len(mpi_includes)
        ctx.symlink(folder, name)
        mpi_includes.append(name)
    ctx.file("BUILD", _BUILD.format(
        mpi_includes = _quoted(mpi_includes),
        mpi_linkopts = _quoted(facts["MPI_LINK"].split(" ")),
        tensorflow_defines = _quoted(facts["TENSORFLOW_DEFINES"].split(" ")),
    ))
    ctx.file("settings.bzl", _SETTINGS.format(**facts))

python_configure = repository_rule(
    implementation = _python_configure_impl,
    environ = ["PYTHON_BIN_PATH", "PATH", "MPICC", "VIRTUAL_ENV"],
    local = True,
)
