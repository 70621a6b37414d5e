"""The machine itself: files, device nodes, processes, kernel modules and kernel log, as several edges need them."""
