"""Links from the documentation to files of the repository outside of docs/.

On GitHub such a link opens the file. The site has no such file: there the link leads to the
repository's own site where mkdocs.yml names one (`repo_url`), and is the file's path otherwise. A
link to a file that does not exist is a warning, which ends a strict build.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[([^\]\[]+)\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")
_logger = logging.getLogger("mkdocs.plugins.repository_links")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrites the links of one page; called by MkDocs."""
    del files
    docs = Path(config.docs_dir).resolve()
    root = docs.parent
    folder = (docs / page.file.src_uri).parent

    def rewritten(link: re.Match[str]) -> str:
        label, target, anchor = link[1], link[2], link[3] or ""
        path = (folder / target).resolve()
        if path.is_relative_to(docs):
            return link[0]
        if not path.is_relative_to(root) or not path.exists():
            _logger.warning("%s links to %s, which does not exist", page.file.src_uri, target)
            return link[0]
        name = path.relative_to(root).as_posix()
        if config.repo_url:
            return f"[{label}]({config.repo_url.rstrip('/')}/blob/HEAD/{name}{anchor})"
        return label if name in label else f"{label} (`{name}`)"

    return _LINK.sub(rewritten, markdown)
