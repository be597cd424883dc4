"""The library of one folder of cc/."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def folder_library(name, deps = [], exclude = []):
    """Declares the library of the folder cc/`name`.

    Args:
      name: The folder's path below cc/.
      deps: The libraries whose headers it may include.
      exclude: Sources that belong to no core library.
    """
    cc_library(
        name = name,
        srcs = native.glob(["cc/%s/*.cc" % name], exclude = exclude),
        hdrs = native.glob(["cc/%s/*.h" % name]),
        textual_hdrs = native.glob(["cc/%s/*.inc" % name]),
        copts = ["-O3"],
        # Everything is in the shared library, also what nothing in the core calls.
        alwayslink = True,
        deps = deps,
    )
