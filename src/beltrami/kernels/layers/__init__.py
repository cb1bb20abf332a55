"""Operations of transformer layers: time columns, centroid attention, residuals, class scores."""
