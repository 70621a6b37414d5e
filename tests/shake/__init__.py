"""The tests again and again, on fresh clones, beside what else a person's machine does."""
