"""The commands about MIG layouts: what there is, what would change, and having it changed."""
