"""What a trained encoder learned: states, outliers, probes, geometry, attention; arrays in, arrays out."""
