"""MIG profiles by name, in every form."""

import pytest

from nodeagent.rules.mig.profiles import Profile, ProfileUnreadable, parse_profile, plain_profile, same_profile


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("1g.10gb", "1g.10gb"),
        ("7g.141gb", "7g.141gb"),
        ("1g.5gb+me", "1g.5gb+me"),
        ("1g.5gb.me", "1g.5gb+me"),
        ("1g.24gb+me.all", "1g.24gb+me.all"),
        ("1g.24gb.me.all", "1g.24gb+me.all"),
        ("2g.48gb+gfx", "2g.48gb+gfx"),
        ("2g.48gb.gfx", "2g.48gb+gfx"),
        ("1g.24gb-me", "1g.24gb-me"),
        ("1g.24gb+gfx-me", "1g.24gb+gfx-me"),
        ("1g.24gb+me,gfx", "1g.24gb+gfx,me"),
        ("1g.24gb+me+gfx", "1g.24gb+gfx,me"),
        ("1c.3g.40gb", "1c.3g.40gb"),
        ("3c.3g.40gb", "3g.40gb"),
        ("1c.2g.12gb+me", "1c.2g.12gb+me"),
        (" 1G.10GB ", "1g.10gb"),
    ],
)
def test_every_form_is_read(text: str, name: str) -> None:
    """Those of drivers, of labels and of files; what is made of them is spelled as drivers do, and read again."""
    profile = parse_profile(text)
    assert profile.name == name
    assert parse_profile(profile.name) == profile


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1g",
        "10gb",
        "g.10gb",
        "0g.5gb",
        "1g.0gb",
        "1g.10gb+",
        "1g.10gb me",
        "1g.10gb++me",
        "all",
        "1c.10gb",
        "0c.1g.5gb",
    ],
)
def test_what_is_no_profile_is_refused_with_what_one_looks_like(text: str) -> None:
    """People mend a slip by an example."""
    with pytest.raises(ProfileUnreadable, match=r"is no MIG profile: write a MIG profile such as 1g\.10gb"):
        parse_profile(text)


def test_a_compute_instance_is_no_larger_than_its_gpu_instance() -> None:
    """Four slices of compute have no place in three."""
    with pytest.raises(ProfileUnreadable, match=r"'4c\.3g\.40gb' has more compute .* at most 3c"):
        parse_profile("4c.3g.40gb")


def test_a_part_of_a_gpu_instance_knows_the_whole() -> None:
    """And a whole one what a part of it is called."""
    part = parse_profile("1c.3g.40gb+me")
    assert (part.is_whole, part.instance.is_whole, part.instance.name) == (False, True, "3g.40gb+me")
    assert part.instance.with_compute(2) == Profile(compute_slices=2, gpu_slices=3, gigabytes=40, more=("me",))


def test_two_names_may_mean_one_profile() -> None:
    """However they are spelled; a name that nobody knows yet means itself."""
    assert same_profile("1g.10gb.me", "1g.10gb+me")
    assert not same_profile("1g.10gb", "1g.10gb+me")
    assert same_profile("new-shape", "new-shape")
    assert not same_profile("new-shape", "1g.10gb")


def test_a_plain_profile_has_no_plus() -> None:
    """Names of resources and labels have none."""
    assert [plain_profile(name) for name in ("1g.10gb+me.all", "1g.24gb-me")] == ["1g.10gb.me.all", "1g.24gb-me"]
