"""Proof for other people: `python -m plans.conformance`, of two-phase servers and of agents. No Django."""
