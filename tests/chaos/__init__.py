"""Everything goes wrong, in an order drawn from a seed, and what must hold is looked at after each step."""
