"""Tests of the toy models of superposition."""
