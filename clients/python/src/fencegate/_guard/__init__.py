"""The guard, as all parts of the client know it: its token, its clock, its signal. Shared by tasks and threads."""
