"""Devices as claims see them: names, published attributes, and taints that keep pods away from a device."""
