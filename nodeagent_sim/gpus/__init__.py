"""Jobs on simulated GPUs, which come and go, and containers with fractions."""
