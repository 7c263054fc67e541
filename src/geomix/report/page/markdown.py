"""The pages of a run as HTML: Markdown that geomix wrote itself; HTML in it is shown, not taken over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from geomix.errors import UserError


@dataclass(frozen=True)
class Document:
    """A rendered page: its title (the first heading, which the HTML lacks), the HTML, and the images that it shows."""

    title: str
    html: str
    images: tuple[str, ...]


def read_document(path: Path, without: Sequence[str] = ()) -> Document:
    """Render a Markdown file, less the sections whose headings are named in `without`; `UserError` where there is none."""
    if not path.is_file():
        raise UserError(f"{path}: no such file, and the page shows it: run the report step first")
    text = path.read_text(encoding="utf-8")
    title = re.match(r"# (.+)\n", text)
    text = text[title.end() :] if title else text
    for name in without:
        text = re.sub(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", "", text, flags=re.MULTILINE | re.DOTALL)
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    # a wide table scrolls by itself: the page stays as wide as the window
    parser.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table class="sortable">\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    images = tuple(re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", text))
    return Document(title.group(1) if title else path.stem, parser.render(text), images)
