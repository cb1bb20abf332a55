"""Operations on all pairs of two sets of points: distances, contrastive losses, top-k."""
