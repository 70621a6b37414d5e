"""The fields, the names to choose fields by, and the reasons for missing fields."""
