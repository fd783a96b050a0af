"""Proof for other people's two-phase servers: `python -m plans.conformance target URL --config FILE`. No Django."""
