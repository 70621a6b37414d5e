"""MIG as resources, labels and configurations speak of it."""


def plain_profile(profile: str) -> str:
    """A profile without the plus sign, which no resource name and no label may have: `1g.10gb.me`."""
    return profile.replace("+", ".")
