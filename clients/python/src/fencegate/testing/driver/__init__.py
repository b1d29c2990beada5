"""The driver for the conformance scenarios: does with this library what they say. The protocol is described in
`clients/conformance/README.md` of the project.

    python -m fencegate.testing.driver               time is the scenario's
    python -m fencegate.testing.driver --real-time   for real gateways
    python -m fencegate.testing.driver --sync        the same with a `Fencegate`, in threads and in real time
"""
