"""Tests of the superposition recipe."""
