"""Elements of a page, as a tree: all text is escaped when the tree is written, wherever it came from. Pure."""

from __future__ import annotations

import unicodedata
from xml.etree import ElementTree as ET

Child = ET.Element | str | None


def tag(name: str, /, *children: Child, **attributes: object) -> ET.Element:
    """An element. `class_` is the attribute `class`; `_` in other names is `-`. A child None is left out."""
    made = ET.Element(name, {_name(key): plain(str(value)) for key, value in attributes.items() if value is not None})
    for child in children:
        if isinstance(child, str):
            _append(made, plain(child))
        elif child is not None:
            made.append(child)
    return made


def written(root: ET.Element) -> str:
    """The tree as a document."""
    return "<!doctype html>\n" + ET.tostring(root, encoding="unicode", method="html") + "\n"


def plain(text: str) -> str:
    """The text without characters that no document may hold."""
    return "".join("\ufffd" if unicodedata.category(c) in {"Cc", "Cs"} and c not in "\n\t" else c for c in text)


def _name(key: str) -> str:
    return "class" if key == "class_" else key.replace("_", "-") if key != "viewBox" else key


def _append(element: ET.Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text
