"""Content types: how Python values become tensors, and tensors Python values. Knows no servers, no callables
and no wire formats."""
