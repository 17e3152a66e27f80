"""The elements of a formula: MathML Core, as the W3C's "MathML Core" has it, section 3."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element


def element(tag: str, *children: Element, text: str | None = None, **attributes: str) -> Element:
    """An element with others, or with a text, in it."""
    made = Element(tag, attributes)
    made.text = text
    made.extend(children)
    return made


def text(content: str) -> Element:
    """Words or code as they are."""
    return element("mtext", text=content)


def number(content: str) -> Element:
    """A number."""
    return element("mn", text=content)


def letter(content: str) -> Element:
    """A name: of one letter in italics, of several upright."""
    return element("mi", text=content)


def word(content: str) -> Element:
    """A name in upright letters, even if it is one letter long."""
    return element("mi", text=content, mathvariant="normal")


def sign(content: str, **attributes: str) -> Element:
    """An operator, a bracket or a comma."""
    return element("mo", text=content, **attributes)


def row(parts: Sequence[Element]) -> Element:
    """The parts side by side, as one element."""
    return parts[0] if len(parts) == 1 else element("mrow", *parts)


def bracketed(*parts: Element) -> Element:
    """The parts in round brackets."""
    return element("mrow", sign("("), *parts, sign(")"))


def separated(parts: Sequence[Element]) -> list[Element]:
    """The parts with commas between them."""
    out: list[Element] = []
    for part in parts:
        out += [sign(","), part] if out else [part]
    return out


def space() -> Element:
    """A narrow gap."""
    return element("mspace", width="0.2em")


def transposed(base: Element) -> Element:
    """Xᵀ; of Xᵀ, X."""
    if base.tag == "msup" and base[1].text == "T":
        return base[0]
    return element("msup", base, word("T"))


def indexed(base: Element, index: Element) -> Element:
    """X with an index at its lower right."""
    return element("msub", base, index)


def indexed_too(base: Element, index: Element) -> Element:
    """The same for what may have an index already: then it has both."""
    if base.tag != "msub":
        return indexed(base, index)
    letter, before = base
    return indexed(letter, row([before, sign(","), index]))


def raised(base: Element, mark: str) -> Element:
    """X with a mark at its upper right, as in σ²."""
    return element("msup", base, number(mark))


def hat(base: Element) -> Element:
    """x̂."""
    return element("mover", base, sign("ˆ", stretchy="false"), accent="true")


def gradient(of: Element) -> Element:
    """dX, the gradient of the loss with respect to X."""
    return element("mrow", word("d"), of)
