"""The status page and the pages behind it, readable without JavaScript."""
