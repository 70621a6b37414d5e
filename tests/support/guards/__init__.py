"""What fails a test that does more than it says: blocks the loop, leaves something behind, uses another's place."""
