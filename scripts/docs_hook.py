"""What MkDocs does not do: README.md and its like as pages, and links that lead out of docs/.

A link to a file of the repository that is no page becomes its name, or a link where mkdocs.yml says `repo_url`. One that
leads nowhere is a warning, and warnings fail `make docs`.
"""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
# Files beside docs/ that are pages.
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
SOURCES = {page: source for source, page in PAGES.items()}
LINK = re.compile(r"(!?)\[([^\]\n]*)\]\(([^)\s]+)\)")
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:")

log = logging.getLogger("mkdocs.hooks.docs")


def on_files(files, config):
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    at = page.file.src_uri
    # Where the text itself lies, from the root of the repository.
    source = SOURCES.get(at, posixpath.join("docs", at))

    def lead(match):
        mark, text, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if SCHEME.match(target) or not path:
            return match[0]
        to = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        inside = PAGES.get(to) or (to.removeprefix("docs/") if to.startswith("docs/") else None)
        if inside is not None:
            # MkDocs itself says where that is, and whether it is there.
            return f"{mark}[{text}]({posixpath.relpath(inside, posixpath.dirname(at) or '.')}{hash_}{anchor})"
        if not (ROOT / to).exists():
            log.warning("%s: the link to %s leads nowhere", source, target)
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{to})"
        return f'<span title="{to}">{text}</span>'

    return LINK.sub(lead, markdown)


def on_page_content(html, page, config, files):
    # A bar in a table's code is written with a backslash, which GitHub takes away and Python-Markdown does not.
    return re.sub(r"<code>[^<]*</code>", lambda code: code[0].replace("\\|", "|"), html)
