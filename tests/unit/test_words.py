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
| `lane`, `ForkLane` | worker | `old.py` |

### Phrases

| retired | say | still read in |
| --- | --- | --- |
| `held against` | checked against | - |
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("the ledger, lanes and planes", []),
        ("one lane\n\nand host_lane", [1, 3]),
        ("ForkLane(lane)", [1, 1]),
        ("a\nit is held\n    # against the cap", [2]),
        ('"it is held "\nf"against the cap"', [1]),
        ("test_it_is_held_against", []),
        ('RENAMED = {\n    "lane": "worker",\n}\nlane', [4]),
    ],
)
def test_finds_retired_terms_by_line(text: str, lines: list[int]) -> None:
    assert [hit.line for hit in hits("new.py", text, terms(PAGE))] == lines


def test_leaves_a_name_where_it_is_still_read() -> None:
    assert hits("old.py", "lane", terms(PAGE)) == []


def test_the_glossary_retires_each_term_once_and_does_not_use_it() -> None:
    page = (ROOT / GLOSSARY).read_text()
    retired = terms(page)
    assert len({term.text for term in retired}) == len(retired) > 0
    assert hits(GLOSSARY, page.partition("\n## Retired\n")[0], retired) == []
