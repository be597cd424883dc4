"""How griffe, which reads the source for mkdocstrings, is to take it for the reference.

A public name means the function, also where its module has the same name: `tfhvd/ops/__init__.py`
imports the function `allreduce` from the module `allreduce`. Python then means the function by
`tfhvd.ops.allreduce`, and griffe the module.

Docstrings have one example, under "Example:". Griffe knows "Examples:" only, and takes the code
under anything else for prose.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class Reference(griffe.Extension):
    """Corrects what griffe has read."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Corrects a docstring; called by griffe for each object that it reads."""
        del kwargs
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Corrects the names of one package; called by griffe when it has read the whole of it."""
        del kwargs
        modules, meant = [pkg], {}
        for module in modules:  # grows meanwhile
            inner = [m for m in module.members.values() if not m.is_alias and m.is_module]
            modules += inner
            for hidden in inner:
                if module.imports.get(hidden.name) == f"{hidden.path}.{hidden.name}":
                    meant[hidden.path] = hidden.members[hidden.name]
                    alias = griffe.Alias(hidden.name, meant[hidden.path], parent=module)
                    module.members[hidden.name] = alias
        for module in modules:
            for name in module.members.values():
                if name.is_alias and name.target_path in meant:
                    name.target = meant[name.target_path]
