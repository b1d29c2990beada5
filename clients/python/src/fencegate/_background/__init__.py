"""What goes on behind the caller's back, on one event loop: renewals, streams about locks, and releases that nobody
waits for any more. Of an `AsyncFencegate` the loop is the caller's own; a `Fencegate` has a thread with one."""
