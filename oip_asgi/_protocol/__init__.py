"""Values for all other packages: tensors, datatypes, documents, limits, errors and effects. It knows none of them, and does no I/O."""
