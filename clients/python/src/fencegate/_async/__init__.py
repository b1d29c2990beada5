"""The library for asyncio, written by hand. `_sync` is made of it by scripts/unasync.py, but for a few modules that are
written by hand in both."""
