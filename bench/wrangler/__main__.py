"""Makes awswrangler's calls with both libraries, and puts the table into docs/wrangler.md."""

from __future__ import annotations

import json
import sys

from bench.wrangler.compare import KEPT, ROOT, judge, page, theirs

PAGE = ROOT / "docs" / "wrangler.md"
BEGIN, END = "<!-- compared -->\n", "\n<!-- /compared -->"


def put(text: str, table: str) -> str:
    """A page with this table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table + END + after


if __name__ == "__main__":
    KEPT.write_text(json.dumps(theirs(), indent=1) + "\n")
    made = page(list(judge(json.loads(KEPT.read_text()))))
    if "--check" not in sys.argv:
        PAGE.write_text(put(PAGE.read_text(), made))
    sys.stdout.write(made + "\n")
