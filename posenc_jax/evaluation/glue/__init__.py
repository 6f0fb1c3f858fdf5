"""Fine-tuning on sentences and pairs, by published protocols: a grid of runs, scores, averages, a submission."""
