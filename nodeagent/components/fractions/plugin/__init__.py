"""The device plugin of a resource of fractions."""
