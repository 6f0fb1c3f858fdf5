"""Devices: the mesh and the rules that lay logical axes onto it."""
