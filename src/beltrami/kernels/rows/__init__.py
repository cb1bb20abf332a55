"""Optimiser steps on the rows of a table of points."""
