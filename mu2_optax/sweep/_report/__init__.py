"""A sweep as one page that opens anywhere."""
