"""The version of this library: that of the gateway it comes with."""

VERSION = "0.1.0"
