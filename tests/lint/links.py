"""Links between pages lead somewhere, and docs/contents.md lists every page once.

Checked are the relative links of every page: to files, folders, and headings (#anchors). The list of docs/contents.md is
the navigation of the site that `make docs` builds (docs/site/hooks.py).
"""

import posixpath
import re
import sys

import tree

CONTENTS = "docs/contents.md"
UNLISTED = {CONTENTS, "README.md"}  # the front page, and the list itself
# Code is matched too, so that nothing inside code is taken for a link.
LINK = re.compile(r"^```.*?^```$|`[^`]+`|(?<=\]\()(?P<target>[^)\s]+)(?=\))", re.S | re.M)
HEADING = re.compile(r"^```.*?^```$|^(?P<level>#+) (?P<text>[^\n]*)$", re.S | re.M)
ENTRY = re.compile(r"- \[(?P<title>[^]]+)\]\((?P<page>[^)]+)\)(: \S.*)?")


def is_relative(target):
    return not re.match(r"[a-z]+:", target)


def links(text):
    """The targets of all relative links outside code."""
    return [link["target"] for link in LINK.finditer(text) if link["target"] and is_relative(link["target"])]


def with_links(text, change):
    """The text, each of whose relative links leads to change(target)."""
    def changed(link):
        return change(link["target"]) if link["target"] and is_relative(link["target"]) else link[0]
    return LINK.sub(changed, text)


def resolved(page, target):
    """The path from the top of the tree to what a target of a page names, and the anchor, empty where there is none."""
    path, _, anchor = target.partition("#")
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page, anchor


def anchors(text):
    """The anchors of the headings, as git hosts and the site make them."""
    words = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading["text"]) for heading in HEADING.finditer(text)
             if heading["level"])
    return [re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in words]


def navigation(text, page=CONTENTS):
    """[(headings, title, page)] of the list in docs/contents.md; ValueError names a line that is no entry."""
    headings = []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        heading = HEADING.fullmatch(line)
        if heading:
            headings = [*headings[:max(len(heading["level"]) - 2, 0)], heading["text"]]
        elif line.startswith("- "):
            entry = ENTRY.fullmatch(line)
            if not entry:
                raise ValueError(f"{page}:{number}: is not `- [title](page)` or `- [title](page): what the page is for`")
            found.append((headings, entry["title"], resolved(page, entry["page"])[0]))
    return found


def unlisted(text, pages):
    """What is wrong with the list, when the tree has these pages."""
    try:
        listed = [page for _, _, page in navigation(text)]
    except ValueError as error:
        return [str(error)]
    missing = [f"{CONTENTS}: lacks {page}" for page in pages if page not in listed]
    return missing + [f"{CONTENTS}: has {page} twice" for page in sorted({p for p in listed if listed.count(p) > 1})]


def dead(page, text, root):
    """What is wrong with the links of a page."""
    for target in links(text):
        path, anchor = resolved(page, target)
        place = root / path
        if not place.exists():
            yield f"{page}: a link to {target}, which does not exist"
        elif anchor and (place.suffix != ".md" or anchor not in anchors(place.read_text(encoding="utf-8"))):
            yield f"{page}: a link to {target}, but {path} has no such heading"


def main():
    pages = [str(path) for path in tree.files(suffixes={".md"})]
    texts = {page: (tree.ROOT / page).read_text(encoding="utf-8") for page in pages}
    found = [problem for page, text in texts.items() for problem in dead(page, text, tree.ROOT)]
    listed = [page for page in pages if page not in UNLISTED and (page.startswith("docs/") or "/" not in page)]
    return tree.report(found + unlisted(texts[CONTENTS], listed), "links")


if __name__ == "__main__":
    sys.exit(main())
