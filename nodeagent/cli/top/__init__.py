"""The screen that is drawn anew every two seconds: rows, keys, views."""
