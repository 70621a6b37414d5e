"""What each device is good for: evidence in, one verdict per device out, and the way back to healthy."""
