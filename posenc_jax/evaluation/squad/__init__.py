"""Questions answered from passages."""
