"""One function a figure: arrays in, a matplotlib `Figure` out, nothing saved."""
