"""Fault sessions: from evidence to a rung of the ladder and an act, within a guard; each intent is closed."""
