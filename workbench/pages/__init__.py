"""What the HTML pages share: their frame, charts in SVG, and statistics.

Comes in: numbers and texts. Goes out: HTML in which every text is escaped. It imports no other
package.
"""
