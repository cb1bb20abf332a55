"""Systems made of the layers, losses and geometry below; one folder a system.

Importing this package imports none of them.
"""
