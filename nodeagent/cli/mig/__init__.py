"""The commands about MIG layouts: the present layout, a plan of changes, and their application."""
