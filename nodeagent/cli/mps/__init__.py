"""The command about MPS daemons: how they stand, and who works through them."""
