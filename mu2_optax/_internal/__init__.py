"""What all rooms share: types, checks, trees, sharding, masks, and the orthogonal factor."""
