"""A real one-machine Kubernetes for tests: built from Go modules, started, steered, and removed without a trace.

`python -m tests.integration.cluster --help` is the door for people, `tests/integration/conftest.py` the one for tests.
"""
