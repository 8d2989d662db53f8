"""`make words` finds retired terms, and only those."""

from __future__ import annotations

import pytest

from tests.words import GLOSSARY, ROOT, hits, terms

PAGE = """\
## Cost

| `ledger` | stays | - |

## Retired

### Names

| retired | say | still read in |
| --- | --- | --- |
| `frob`, `FrobPort` | worker | `old.py` |

### Phrases

| retired | say | still read in |
| --- | --- | --- |
| `set beside` | next to | - |
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("the ledger, frobs and frobnicates", []),
        ("one frob\n\nand host_frob", [1, 3]),
        ("FrobPort(frob)", [1, 1]),
        ("a\nit is set\n    # beside the cap", [2]),
        ('"it is set "\nf"beside the cap"', [1]),
        ("test_it_is_set_beside", []),
        ('RENAMED = {\n    "frob": "worker",\n}\nfrob', [4]),
    ],
)
def test_finds_retired_terms_by_line(text: str, lines: list[int]) -> None:
    assert [hit.line for hit in hits("new.py", text, terms(PAGE))] == lines


def test_leaves_a_name_where_it_is_still_read() -> None:
    assert hits("old.py", "frob", terms(PAGE)) == []


def test_the_glossary_retires_each_term_once_and_does_not_use_it() -> None:
    page = (ROOT / GLOSSARY).read_text()
    retired = terms(page)
    assert len({term.text for term in retired}) == len(retired) > 0
    assert hits(GLOSSARY, page.partition("\n## Retired\n")[0], retired) == []
