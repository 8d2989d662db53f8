"""How far the agent is from an optimum that sees the future: markets, traces, a model of bursts, and the comparison."""
