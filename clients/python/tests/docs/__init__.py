"""The documentation: every example in it runs, and every recipe works."""
