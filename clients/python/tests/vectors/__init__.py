"""The vectors of all clients (`clients/vectors`), against what this library decides."""
