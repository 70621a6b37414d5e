"""The screen of `top`, drawn again every two seconds: rows, keys, views."""
