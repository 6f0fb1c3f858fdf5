"""What a run would need of TPUs, asked of their compiler before any is rented."""
