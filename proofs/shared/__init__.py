"""What every proof is made with.

Comes in: code to measure. Goes out: rows for docs/results.md. Never imported here: any other
package of `proofs`.
"""
