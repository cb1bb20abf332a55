"""The superposition lab: how the loss of toy models falls with their width, and why."""
