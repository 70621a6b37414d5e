"""The settings themselves, one class per section, grouped by subject."""
