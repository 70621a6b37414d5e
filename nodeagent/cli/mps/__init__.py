"""The command about MPS daemons: their state and their clients."""
