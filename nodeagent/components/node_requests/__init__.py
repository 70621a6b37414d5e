"""Carries out node requests and reports the outcome: pauses, named configurations, MIG layouts."""
