"""An XML document as dicts, lists and texts."""

from __future__ import annotations

from typing import Any
from xml.parsers import expat

__all__ = ["parse_xml"]


def parse_xml(text: str) -> dict[str, Any]:
    """``{root: value}``, where an element is a dict of its children, a list where a name comes again, or its text.

    Attributes are entries with ``@`` before the name, and text beside children or attributes is ``#text``; an element
    with nothing in it is ``None``. Entities that the document itself defines are not read.

    **Errors**: `xml.parsers.expat.ExpatError` for a document that is not well formed, `ValueError` for one that
    defines entities.
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.ordered_attributes = True
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.texts.append
    parser.EntityDeclHandler = _refuse
    reader.collect = lambda handler: setattr(parser, "CharacterDataHandler", handler)
    parser.Parse(text, True)
    return reader.root


def _refuse(*declaration: Any) -> None:
    raise ValueError("the document defines entities")


class _Reader:
    def __init__(self) -> None:
        self.root: dict[str, Any] = {}
        self.texts: list[str] = []
        self.collect: Any = None
        self._open: list[tuple[dict[str, Any], list[str]]] = [(self.root, [])]

    def start(self, name: str, attributes: list[str]) -> None:
        children: dict[str, Any] = {
            f"@{key}": value for key, value in zip(attributes[::2], attributes[1::2], strict=True)
        }
        self._open.append((children, []))
        self.collect(self._open[-1][1].append)

    def end(self, name: str) -> None:
        children, texts = self._open.pop()
        text = "".join(texts).strip() or None
        value: Any = text
        if children:
            value = children if text is None else {**children, "#text": text}
        parent, parent_texts = self._open[-1]
        if name in parent:
            known = parent[name]
            parent[name] = [*known, value] if isinstance(known, list) else [known, value]
        else:
            parent[name] = value
        self.collect(parent_texts.append)
