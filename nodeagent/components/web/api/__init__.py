"""The API: its records, its index, its stream, and the commands of the admin socket."""
