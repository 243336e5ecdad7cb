"""The model side: config → data → model → learning_rate → training → artifact → inference →
submission.
"""
