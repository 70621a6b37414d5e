"""The composition root: settings → edges → components → supervisor. The only package that knows every component."""
