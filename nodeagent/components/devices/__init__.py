"""Gives devices of any vendor to containers, by the configuration's classes."""
