"""What the client decides, without I/O and without a clock: milliseconds and answers come in, decisions come out.

The vectors of all clients run against these modules.
"""
