"""What can be seen of a GPU, and what each thing seen means."""
