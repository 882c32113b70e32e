"""Serves every page as Markdown beside its HTML, and lists them in llms.txt, for those who read by machine.

mkdocs calls these functions.  A plugin for it makes Markdown of the HTML again, with four packages more; our pages are Markdown.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

_placed: list[Any] = []
_others: list[Any] = []


def on_nav(nav: Any, *, files: Any, **_: Any) -> Any:
    """Remember all pages: those of the navigation in its order, and the others."""
    _placed[:] = [page.file for page in nav.pages]
    _others[:] = sorted(
        (one for one in files.documentation_pages() if one not in _placed), key=lambda one: one.src_uri
    )
    return nav


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Name the Markdown in the page's head."""
    own = PurePosixPath(page.file.src_uri).name
    return output.replace("</head>", f'<link rel="alternate" type="text/markdown" href="{own}"></head>', 1)


def on_post_build(config: Any, **_: Any) -> None:
    """Write the Markdown of each page, and llms.txt."""
    site = Path(config["site_dir"])
    parts = [f"# {config['site_name']}", f"> {config['site_description']}"]
    for section, files in (("Pages", _placed), ("Optional", _others)):
        lines = []
        for file in files:
            text = _with_docstrings(Path(file.abs_src_path).read_text(encoding="utf-8"))
            (site / file.src_uri).parent.mkdir(parents=True, exist_ok=True)
            (site / file.src_uri).write_text(text, encoding="utf-8")
            title, said = _summary(text)
            lines.append(f"- [{title}]({file.src_uri})" + (f": {said}" if said else ""))
        parts += [f"## {section}", "\n".join(lines)]
    (site / "llms.txt").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _summary(text: str) -> tuple[str, str]:
    """The title of a page, and the first sentence below it."""
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    below = text[title.end() :] if title else text
    paragraphs = [" ".join(one.split()) for one in below.split("\n\n")]
    plain = next((one for one in paragraphs if re.match(r"(?!```)[A-Z`*\[]", one)), "")
    sentence = re.split(r"(?<=[.:]) ", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", plain))[0]
    return (title[1] if title else ""), sentence.rstrip(":")


def _with_docstrings(text: str) -> str:
    """The reference names objects; their signatures and docstrings stand there instead."""
    return re.sub(
        r"^::: (\S+)\n(?:    options:\n      members: \[(.*)\]\n)?",
        lambda found: _described(found[1], found[2]),
        text,
        flags=re.MULTILINE,
    )


@cache
def _package(name: str) -> Any:
    """All modules of a package; to read them takes seconds."""
    import griffe

    return griffe.load(name, search_paths=["."])


def _described(name: str, members: str | None) -> str:
    package, _, path = name.partition(".")
    found: Any = _package(package)[path]
    found = found.final_target if found.is_alias else found
    own = [one for one, member in found.members.items() if not (one.startswith("_") or member.is_alias)]
    below = [found.members[one] for one in (members.split(", ") if members else own)]
    parts = [f"### `{name}`", _said(found, "" if found.is_module else _signature(found))]
    for one in below if found.is_module or found.is_class else ():
        target = one.final_target if one.is_alias else one
        if target.is_function or target.is_class:
            parts.append(f"#### `{one.name}`\n\n{_said(target, _signature(target))}")
    return "\n\n".join(parts) + "\n"


def _said(target: Any, signature: str) -> str:
    code = f"```python\n{signature}\n```" if signature else ""
    return "\n\n".join(filter(None, (code, target.docstring.value if target.docstring else "")))


def _signature(target: Any) -> str:
    return target.signature() if hasattr(target, "signature") else f"class {target.name}"
