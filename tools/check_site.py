"""Look through the built documentation for links that lead nowhere, and for files that differ by case alone.

    python tools/check_site.py docs/_build/html

Links to other sites are not followed. Case counts, also where the file system does not tell cases apart.
"""

import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Targets of links and pictures on a page, and the names by which places on it are linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag links to, and what it can be linked by."""
        for name, value in attrs:
            if value and name in ("href", "src") and tag != "base":
                self.links.append(value)
            elif value and (name == "id" or (name == "name" and tag == "a")):
                self.names.add(value)


def check(site: Path) -> list[str]:
    """Return what is wrong, one sentence each."""
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    pages = {name: Page((site / name).read_text(encoding="utf-8")) for name in sorted(files) if _is_page(name)}
    wrong = [f"{' and '.join(sorted(same))} differ by case alone" for same in _same_but_for_case(files)]
    for name, page in pages.items():
        for link in page.links:
            target = urlsplit(link)
            if target.scheme or target.netloc:
                continue
            path = _resolved(name, unquote(target.path))
            if path not in files:
                wrong.append(f"{name} links to {link}, which is not there")
            elif target.fragment and path in pages and unquote(target.fragment) not in pages[path].names:
                wrong.append(f"{name} links to {link}, a place that the page does not have")
    return wrong


def _is_page(name: str) -> bool:
    return name.endswith(".html") and not name.startswith("_static/")  # where the theme keeps templates


def _same_but_for_case(files: set[str]) -> list[list[str]]:
    folded = defaultdict(list)
    for name in files:
        folded[name.lower()].append(name)
    return [names for names in folded.values() if len(names) > 1]


def _resolved(page: str, path: str) -> str:
    """Return the file that a path on a page means."""
    if not path:
        return page
    parts = page.split("/")[:-1] if not path.startswith("/") else []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join([*parts, "index.html"] if path.endswith("/") else parts)


def main() -> int:
    """Print what is wrong."""
    site = Path(sys.argv[1])
    wrong = check(site)
    for sentence in wrong:
        print(sentence)
    print(f"{len(list(site.rglob('*.html')))} pages looked at, {len(wrong)} faults")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
