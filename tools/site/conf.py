# SPDX-License-Identifier: Apache-2.0
"""The docs site: README.md and the pages of docs/, read where they lie.

A new page needs nothing here: it stands in the menu under its own title. Where a text names
another page as docs/page.md, the site has a link; a page that is not there fails the build.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MENU = {
    "Begin": (
        "install",
        "first-job",
        "local",
        "training",
        "dashboard",
        "terminal",
        "migration",
    ),
    "Use": ("jobs", "gang-schedulers", "policies", "queues", "waiting", "reasons", "reference"),
    "Operate": (
        "multi-tenancy",
        "sizing",
        "doctor",
        "metrics",
        "reliability",
        "real",
        "speed",
        "trace",
    ),
    "Take part": ("architecture", "../CONTRIBUTING", "../CHANGELOG", "../SECURITY"),
}
"""Caption -> pages in order, of which some may not be there yet."""
MORE = "Operate"
"""Where pages stand that are not in the menu."""

project = "Muster"
html_title = "Muster"
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["README.md", "docs/*.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
exclude_patterns = [".*", "build", "dist", "operator", "tests", "tools", "manifests"]
myst_heading_anchors = 4
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]


def pages() -> set[str]:
    """Return the pages of docs/ that there are, and those beside it, as the menu names them."""
    found = {path.stem for path in (ROOT / "docs").glob("*.md")}
    beside = ("CONTRIBUTING", "CHANGELOG", "SECURITY")
    return found | {f"../{name}" for name in beside if (ROOT / f"{name}.md").exists()}


def menu() -> Iterator[str]:
    """Yield the menu as the front page has it: invisible there, at the side of each page."""
    there = pages()
    rest = sorted(there - {name for names in MENU.values() for name in names})
    for caption, names in MENU.items():
        listed = [*(name for name in names if name in there), *(rest if caption == MORE else ())]
        entries = "\n".join(f"docs/{name}".replace("docs/../", "") for name in listed)
        yield f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def read(_app: object, page: str, source: list[str]) -> None:
    """Give the front page the menu, and every page links where it names another."""
    base = "" if "/" in page else "docs/"
    name = re.compile(r"(?<![\w(/\[])`?docs/([\w-]+\.md)`?(?![\w\])])")
    verbatim = r"(^```.*?^```$|`(?!docs/[\w-]+\.md`)[^`\n]*`)"
    parts = re.split(verbatim, source[0], flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [name.sub(rf"[\1]({base}\1)", text) for text in parts[::2]]
    source[0] = "".join(parts) + ("\n\n" + "\n".join(menu()) if page == root_doc else "")


def begin(app: Any, error: object) -> None:
    """Let the site begin where a browser looks first."""
    if error is None:
        (app.outdir / "index.html").write_bytes((app.outdir / "README.html").read_bytes())


def setup(app: Any) -> None:
    """Take part in the build."""
    app.connect("source-read", read)
    app.connect("build-finished", begin)
