"""Values that all other packages use: tensors, datatypes, documents, limits, errors and effects. Knows none of them, and does no I/O."""
