"""A node that lives for long: a day by a clock that runs fast, or minutes by the world's, with nothing left over."""
