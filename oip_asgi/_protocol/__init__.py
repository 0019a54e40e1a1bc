"""Values that all rooms speak of: tensors, datatypes, documents, limits, errors and effects. Knows no room above it, and no I/O."""
