"""Values for all other packages: tensors, datatypes, documents, limits, errors, the face of waiting. It knows none, and does no I/O."""
