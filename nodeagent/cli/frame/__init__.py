"""The command line itself: commands as values, and their parser, help, manual and completion."""
