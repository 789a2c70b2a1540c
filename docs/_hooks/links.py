"""Links of the pages that leave docs/: on the site, which has only the pages, they are the names of the files."""

import re
from posixpath import dirname, join, normpath
from typing import Any

LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#\s]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return the text of a page without links to files that are not pages."""
    return LINK.sub(lambda found: _kept(found, page.file.src_uri), markdown)


def _kept(found: re.Match[str], page: str) -> str:
    text, target = found[1], normpath(join("docs", dirname(page), found[2]))
    if target.startswith("docs/"):
        return found[0]
    return text if text.strip("`") in target else f"{text} (`{target}`)"
