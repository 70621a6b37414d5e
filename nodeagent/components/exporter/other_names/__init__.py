"""What containers use of their parts, under the metric names of other programs."""
