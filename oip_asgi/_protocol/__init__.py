"""Values for all other packages: tensors, datatypes, documents, limits and errors. It knows none of them, and
does no I/O."""
