"""Starts the driver."""

from __future__ import annotations

import argparse
import sys

from . import asynchronous, threads


def main() -> int:
    """Does what the commands on the standard input say, until they end."""
    parser = argparse.ArgumentParser(
        prog="fencegate.testing.driver", description="Drives the library as scenarios say."
    )
    parser.add_argument("--real-time", action="store_true", help="let time pass by itself, for real gateways")
    parser.add_argument("--sync", action="store_true", help="drive the library for threads, in real time")
    chosen = parser.parse_args()
    if chosen.sync:
        threads.drive()
    else:
        asynchronous.drive(virtual=not chosen.real_time)
    return 0


if __name__ == "__main__":
    sys.exit(main())
