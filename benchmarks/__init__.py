"""How fast the template is beside what people use otherwise: a script per subject."""
