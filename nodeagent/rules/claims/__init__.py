"""Devices as claims see them: how they are called, what is told of them, and what keeps pods away from one."""
