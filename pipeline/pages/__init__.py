"""What HTML pages are drawn with: the frame of a page, charts in SVG, and statistics.

Comes in: numbers and texts. Goes out: HTML in which every text is escaped. Never imported here: any
other package.
"""
