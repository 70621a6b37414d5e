"""Hypothesis on a busy machine: a slow example is no failure, a wrong one is."""

from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
