"""The page in a real browser; needs Chromium, see `make browser`."""
