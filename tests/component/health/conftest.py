"""The fake driver library, for health judged through the real NVML client."""

from tests.component.edge_nvml.conftest import fake, make_fake

__all__ = ["fake", "make_fake"]
