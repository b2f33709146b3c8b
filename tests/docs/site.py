#!/usr/bin/env python3
"""The site that `make docs` makes is whole: every page is there, nothing is loaded from other servers, and the search
knows the pages. MkDocs itself ends with an error at a dead link or anchor.

    tests/docs/site.py      skipped where `.ci/install docs` has not run
"""

import html.parser
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MKDOCS = pathlib.Path(os.environ.get("TUTTI_DEPS", pathlib.Path.home() / ".cache/tutti")) / "docs/bin/mkdocs"
SKIPPED = 77
CODE = ("code", "script", "style")
MARK = re.compile(r"[-*] |\||#+ |```|~~~|.*\]\(")
sys.path.insert(0, str(ROOT / "tests/lint"))
import links  # noqa: E402


class Page(html.parser.HTMLParser):
    """What is wrong with a page: what it loads from other servers, links to files that the site lacks, and Markdown that
    was not understood, so that its marks are shown as text."""

    def __init__(self, page):
        super().__init__()
        self.page = page
        self.wrong = []
        self.code = 0  # how many elements of code the parser is in
        self.feed(page.read_text(encoding="utf-8"))

    def handle_data(self, data):
        if not self.code:
            self.wrong += [f"{self.page}: shows {line!r}" for line in data.splitlines() if MARK.match(line)]

    def handle_endtag(self, tag):
        self.code -= tag in CODE

    def handle_starttag(self, tag, attributes):
        self.code += tag in CODE
        fields = dict(attributes)
        address = fields.get("src") or fields.get("href") or ""
        if address.startswith(("http:", "https:", "//")):
            if tag != "a":
                self.wrong.append(f"{self.page}: loads {address}")
        elif not address.startswith(("#", "data:")) and self.page.name != "404.html":
            if not (self.page.parent / address.partition("#")[0].partition("?")[0]).exists():
                self.wrong.append(f"{self.page}: {address} does not exist")


def problems(site):
    pages = list(site.rglob("*.html"))
    wrong = [problem for page in pages for problem in Page(page).wrong]
    entries = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    found = {entry["location"].partition("#")[0] for entry in entries}
    contents = (ROOT / links.CONTENTS).read_text(encoding="utf-8")
    for _, title, page in links.navigation(contents):
        place = page.removeprefix("docs/").removesuffix(".md").replace("README", "index") + ".html"
        place = place if "/" in page else place.lower()
        if not (site / place).exists() or place not in found:
            wrong.append(f"{page} ({title}): the site has no {place}, or the search does not know the page")
    if not (site / "search/search_index.js").exists():
        wrong.append("the search works from a server only: search_index.js is missing")
    return wrong


def main():
    if not MKDOCS.exists():
        print(f"skipped: {MKDOCS} does not exist; `.ci/install docs` installs MkDocs")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        built = subprocess.run([MKDOCS, "build", "--config-file", ROOT / "docs/site/mkdocs.yml", "--site-dir", folder],
                               env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
        wrong = [built.stdout + built.stderr] if built.returncode else problems(pathlib.Path(folder))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
