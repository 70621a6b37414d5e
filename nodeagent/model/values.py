"""The base class of all values, so that each is frozen, comparable, cheap, and has a JSON form by construction."""

from msgspec import Struct


class Value(Struct, frozen=True, kw_only=True):
    """An immutable record; equal when all fields are equal."""
