"""Parts of GPUs: what can be asked for, how the ids are called, whose they are, what a start or a loss leaves to do."""
