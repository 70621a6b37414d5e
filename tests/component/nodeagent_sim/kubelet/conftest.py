from tests.support.files.short_directory import short_dir

__all__ = ["short_dir"]
