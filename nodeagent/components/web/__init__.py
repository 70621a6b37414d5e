"""The agent's face: health endpoints, the JSON API, the status page, and the admin socket."""
