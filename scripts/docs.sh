#!/bin/sh
# Builds the site of the documentation: `scripts/docs.sh FOLDER`. MkDocs comes from PyPI into an environment of its own on
# first use. Warnings, dead links and anything that a browser would load from elsewhere fail it.
set -eu
cd "$(dirname "$0")/.."
site=${1:?usage: scripts/docs.sh FOLDER}
venv=${CARGO_TARGET_DIR:-target}/docs-venv

# Made anew where what is asked for has changed.
if ! cmp -s scripts/docs-requirements.txt "$venv/asked"; then
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r scripts/docs-requirements.txt
    cp scripts/docs-requirements.txt "$venv/asked"
fi
export NO_MKDOCS_2_WARNING=1
"$venv/bin/mkdocs" build --strict --clean --site-dir "$site"

outside=$(grep -rlE '(src|@import)[= ]*"?https?://|<link[^>]+(stylesheet|preconnect|icon)[^>]+https?://' "$site" --include='*.html' --include='*.css' || true)
[ -z "$outside" ] || {
    echo "docs: these load something from elsewhere: $outside" >&2
    exit 1
}
echo "docs: $site/index.html (for the search: python3 -m http.server --directory $site)"
