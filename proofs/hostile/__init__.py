"""Hostile names, archives, arrays and pages neither write elsewhere nor run code."""
