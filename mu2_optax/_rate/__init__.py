"""The rate that a run finds by itself: directions, the distance come so far, the sample of it."""
