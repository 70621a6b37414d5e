"""The text formats of Prometheus, and one scrape's answer."""
