"""The command line itself: commands as values, and what is made of them: parser, help, manual, completion."""
