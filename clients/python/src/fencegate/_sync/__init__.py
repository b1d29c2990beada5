"""The library for threads. Made of `_async` by scripts/unasync.py, but for a few modules that are written by hand in
both."""
