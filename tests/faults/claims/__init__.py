"""Death at every step of making a claim ready and putting it away."""
