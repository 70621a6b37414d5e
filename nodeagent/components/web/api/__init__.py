"""The API: records, index, stream, and the commands of the admin socket."""
