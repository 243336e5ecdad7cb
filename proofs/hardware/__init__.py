"""Proof: nothing makes an accelerator wait, and what a step takes of one."""
