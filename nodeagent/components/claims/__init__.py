"""Claims of dynamic resource allocation: prepared before their pods start, unprepared after the last pod."""
