from tests.support.programs.fake_nvml import fake

__all__ = ["fake"]
