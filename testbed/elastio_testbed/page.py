"""One self-contained HTML page of a result: its tables and its picture, without network or script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from elastio_testbed.evaluation import disturbance
from elastio_testbed.picture import to_svg
from elastio_testbed.reference_results import SOURCE
from elastio_testbed.tables import all_tables, conditions, every_repetition


def page(document: Mapping[str, Any]) -> str:
    """The whole page of a result's JSON document."""
    loader = PackageLoader("elastio_testbed", ".")
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("page.html.j2")
    return template.render(
        document=document,
        warning=disturbance(document["disturbed"]),
        picture=to_svg(document),
        tables=[*all_tables(document), every_repetition(document), conditions(document)],
        source=SOURCE,
    )
