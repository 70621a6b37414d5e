from tests.support.files.short_directory import short_dir
from tests.support.programs.fake_nvml import fake

__all__ = ["fake", "short_dir"]
