"""Custom: code of a competitor's own, in the file of the config.

Reads  `digits_own.py`, and files in which one thing cannot work (`broken_files.py`)
Gives  rows: such a file goes through the whole chain and through kills; each broken one is refused;
       each option of a recipe (`recipes.py`) is the same on any devices, and works
"""
