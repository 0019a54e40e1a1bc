"""How many replicas a load needs, and what to set: a simulation with the real limiter, a formula, and a run of real processes."""
