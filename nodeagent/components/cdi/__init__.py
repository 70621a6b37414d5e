"""CDI specifications: what a GPU is made of, written where container runtimes read it."""
