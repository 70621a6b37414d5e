"""Use of fractions under the metric names of other programs."""
