"""Makes pages of the site from what lies outside docs/, from code that pages link to, and from docs/contents.md.

A link works both on a git host, which shows files as they are, and on the site, which has no files of code. There every
file and folder that a page links to has a page of its own, outside the navigation.
"""

import pathlib
import posixpath
import re
import sys

from mkdocs.structure.files import File, InclusionLevel
from pygments.lexers import find_lexer_class_for_filename

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lint"))
import links  # noqa: E402
import tree  # noqa: E402

FRONT = "README.md"
SHOWN_AS_THEY_ARE = {".svg", ".png"}
ITEM = re.compile(r"(?P<mark>[-*]|\d+\.) (?P<text>.*)")
SOURCE = re.compile(r"^<!-- file: (?P<file>\S+).* -->\n```(?P<language>\w+)$", re.M)


def place(path):
    """Where the site's sources have the file or folder of a path from the top of the tree."""
    if path == FRONT:
        return "index.md"
    if path.endswith(".md"):
        return path.removeprefix("docs/") if path.startswith("docs/") else path.lower()
    if pathlib.PurePosixPath(path).suffix in SHOWN_AS_THEY_ARE and path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md"


def files_of(folder):
    return sorted(file.name for file in folder.iterdir() if file.is_file())


def page_of_source(path):
    """The text of the page that shows a file, or lists a folder."""
    here = ROOT / path
    head = f"---\nsearch:\n  boost: 0.3\n---\n# {path}\n\n"  # found below the pages of docs/
    if here.is_dir():
        return head + "".join(f"- [{name}]({here.name}/{name}.md)\n" for name in files_of(here))
    lexer = find_lexer_class_for_filename(here.name)
    return f"{head}~~~~{lexer.aliases[0] if lexer else 'text'}\n{here.read_text(encoding='utf-8')}~~~~\n"


def sources_of(pages):
    """The files and folders of code that pages link to, and what lies in these folders."""
    found = set()
    for page, text in pages.items():
        found |= {links.resolved(page, target)[0] for target in links.links(text)}
    found |= {f"{path}/{name}" for path in found if (ROOT / path).is_dir() for name in files_of(ROOT / path)}
    return sorted(path for path in found if place(path).startswith("source/") and (ROOT / path).exists())


def with_wide_lists(text):
    """The text with lists as this Markdown wants them: what belongs to an item is indented by four, not by the width of the
    item's mark, and an item after one of several paragraphs follows an empty line."""
    lines = [""]
    width = 0  # of the mark of the list that the line is in
    paragraphs = False  # whether an item of the list has several
    fenced = False
    for line in text.splitlines():
        item = None if fenced else ITEM.fullmatch(line)
        fenced ^= line.lstrip().startswith("```")
        if item:
            if paragraphs and lines[-1]:
                lines.append("")
            width = len(item["mark"]) + 1
            line = f"{item['mark']:4}{item['text']}"
        elif width and line.startswith(" " * width):
            paragraphs |= not lines[-1]
            line = " " * 4 + line[width:]
        elif line and not lines[-1]:
            width = 0
            paragraphs = False
        lines.append(line)
    return "\n".join(lines[1:]) + "\n"


def on_config(config):
    config.nav = [{"Tutti": "index.md"}, {"All pages": place(links.CONTENTS)}]
    for headings, title, page in links.navigation((ROOT / links.CONTENTS).read_text(encoding="utf-8")):
        section = config.nav
        for heading in headings:
            if not section or list(section[-1]) != [heading]:
                section.append({heading: []})
            section = section[-1][heading]
        section.append({title: place(page)})
    return config


def on_files(files, config):
    pages = {str(path): (ROOT / path).read_text(encoding="utf-8") for path in tree.files(suffixes={".md"})
             if path.parts[0] == "docs" or len(path.parts) == 1}
    for page in pages:
        if "/" not in page:
            files.append(File.generated(config, place(page), abs_src_path=str(ROOT / page)))
    for path in sources_of(pages):
        files.append(File.generated(config, place(path), content=page_of_source(path), inclusion=InclusionLevel.NOT_IN_NAV))
    config.extra["origins"] = {place(page): page for page in pages}
    return files


def on_page_markdown(markdown, page, config, files):
    here = page.file.src_uri
    origin = config.extra["origins"].get(here)
    if not origin:
        return markdown  # a page that shows code

    def on_site(target):
        path, anchor = links.resolved(origin, target)
        return posixpath.relpath(place(path), posixpath.dirname(here)) + (anchor and f"#{anchor}")

    titled = SOURCE.sub(lambda block: f'```{block["language"]} title="{block["file"]}"', links.with_links(markdown, on_site))
    return with_wide_lists(titled)
