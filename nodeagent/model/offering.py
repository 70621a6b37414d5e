"""By which door each GPU is given out: whole, in fractions, by claims, or not at all."""

from enum import StrEnum


class Door(StrEnum):
    """The ways in which a GPU can be given out; at each moment it is one of them."""

    WHOLE = "whole"
    """By the device plugin: whole, shared by turns or at the same time, or as MIG devices."""
    FRACTIONS = "fractions"
    """In parts of its compute and memory."""
    CLAIMS = "claims"
    """By claims of dynamic resource allocation."""
    NONE = "none"
    """Not at all."""
