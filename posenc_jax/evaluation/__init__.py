"""What a pre-trained encoder is worth: fine-tuning protocols, metrics, tables of scores."""
