"""Annotations of the node object as JSON of a numbered form, read whole or not at all."""

from typing import TypeVar

import msgspec

from nodeagent.model.errors import PublicationUnreadable

F = TypeVar("F")


class _Head(msgspec.Struct, frozen=True):
    form: int


def decode_annotation(annotation: str, text: str, kind: type[F], *, form: int, longest: int) -> F:
    """The value of an annotation.

    A later form than `form` is not damaged, and must not be called so; at most `longest` characters are read.

    Raises:
        PublicationUnreadable: the text is not whole, too long, or of another form.
    """
    if len(text) > longest:
        raise PublicationUnreadable(annotation, f"it has {len(text)} characters, at most {longest} are read")
    number = _read_form(text, form)
    if number != form:
        reason = f"it has form {number}, this version reads form {form}; bring node and extender to the same version"
        raise PublicationUnreadable(annotation, reason)
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PublicationUnreadable(annotation, str(error) or type(error).__name__) from error


def _read_form(text: str, form: int) -> int:
    try:
        return msgspec.json.decode(text, type=_Head).form
    except (msgspec.DecodeError, RecursionError):
        return form
