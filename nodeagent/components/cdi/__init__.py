"""CDI specifications: the device nodes, files and hooks of each GPU, written where container runtimes read them."""
