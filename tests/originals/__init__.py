"""Other people's programs that stand-ins of these tests are held against: fetched once, never installed."""
