"""A real Prometheus against a simulated node: `apt-get install prometheus` gives it, and promtool."""
