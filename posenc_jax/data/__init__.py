"""Text sources, tokenizer, packing to rows on disk, loading."""
