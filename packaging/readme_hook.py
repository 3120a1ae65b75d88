"""What a package index shows: README.md with links that lead somewhere, and the project's address.

PROJECT_URL is a GitHub address (https://github.com/OWNER/NAME): links lead to the version's tag there. Without it links to files are
plain text, and images are left out.
"""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def shown(readme, url, version):
    def link(match):
        image, text, path = match.groups()
        if not url:
            return "" if image else text
        return f"{image}[{text}]({url}/{'raw' if image else 'blob'}/v{version}/{path})"

    return re.sub(r"\n{3,}", "\n\n", LINK.sub(link, readme))


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata):
        url = os.environ.get("PROJECT_URL", "").rstrip("/")
        text = shown(Path(self.root, "README.md").read_text(), url, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        changes = f"{url}/blob/v{metadata['version']}/CHANGELOG.md"
        metadata["urls"] = {"Homepage": url, "Issues": f"{url}/issues", "Changelog": changes} if url else {}
