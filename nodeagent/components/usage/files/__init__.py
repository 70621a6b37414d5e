"""Bounds what containers write into the files of their parts, and says which of them wrote more."""
