"""Likeness of sentences and of words in their sentences, without training."""
