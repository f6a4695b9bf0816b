"""A hook of mkdocs: pages and pictures that stand outside docs/ join the site.

The README becomes the first page. Each other page keeps its text; links between files of the
repository become links between pages of the site.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PAGES = {  # where it stands in the repository -> its name in the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "streamer/model/embedded/MODEL_CARD.md": "model_card.md",
    "pipelines/embedded/REPORT.md": "report.md",
    "streamer/extras/mcp/README.md": "mcp.md",
    "streamer/extras/otel/README.md": "otel.md",
}
LINK = re.compile(r"(\]\()([^)#\s]+)([^)]*\))")
PICTURES = (".png", ".svg")


def on_files(files, config):
    """Add the pages, and every picture that a page of theirs or of docs/ shows."""
    inside = [f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".md")]
    for place, name in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / place).read_text("utf-8")))
    shown = [target for place in [*PAGES, *inside] for target in _targets(place)]
    for target in dict.fromkeys(shown):
        if target.endswith(PICTURES) and not target.startswith("docs/"):
            files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links as the site has them."""
    places = {name: place for place, name in PAGES.items()}
    here = places.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    folder = posixpath.dirname(page.file.src_uri)

    def moved(found):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), found[2]))
        inside = PAGES.get(target, target.removeprefix("docs/"))
        if files.get_file_from_path(inside) is None:
            return found[0]
        return f"{found[1]}{posixpath.relpath(inside, folder or '.')}{found[3]}"

    return LINK.sub(moved, markdown)


def _targets(place):
    text = (ROOT / place).read_text("utf-8")
    folder = posixpath.dirname(place)
    return [posixpath.normpath(posixpath.join(folder, found[2])) for found in LINK.finditer(text)]
