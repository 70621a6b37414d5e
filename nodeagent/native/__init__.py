"""Programs and libraries in C that run in containers or before the runtime; no Python imports them: `make native`."""
