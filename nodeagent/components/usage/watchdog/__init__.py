"""Ends processes of containers that keep more of a GPU's memory than their part, where that is wanted."""
