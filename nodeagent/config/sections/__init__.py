"""The settings themselves, one class per section, grouped by what they are about."""
