"""Creates the records that interfaces show, and determines which records are new.

The design is described in docs/design/presenting.md.
"""
