"""The machine itself: files, device nodes, processes, kernel modules and log. What several edges need of it is here."""
