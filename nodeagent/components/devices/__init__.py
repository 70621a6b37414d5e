"""Gives devices of any vendor to containers, as the configuration describes them."""
