"""What measures, compares and searches, instead of asking for one promise: a folder each. README.md says what each is for."""
