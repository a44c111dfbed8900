"""Stands in for the package where only the child's own doings are looked at: it loads in no time."""
