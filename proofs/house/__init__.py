"""The layout: floors of packages, sizes of bundles, and old artifacts that are still read."""
