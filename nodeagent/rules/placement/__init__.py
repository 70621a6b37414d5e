"""Which of the free devices serve a container best, and why."""
