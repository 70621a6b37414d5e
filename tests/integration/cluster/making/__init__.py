"""What is there before the first process of the cluster starts: programs, images, keys, files."""
