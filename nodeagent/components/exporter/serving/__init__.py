"""The text formats of Prometheus, and the answer to a scrape."""
