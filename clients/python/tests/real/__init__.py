"""The library against real gateways."""
