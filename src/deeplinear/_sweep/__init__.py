"""Sweeps: a grid of problems, its batches, where they run, and the folder that keeps what is finished.

``grid`` and ``plan`` say what there is to do, ``work`` does one batch, ``runners`` and ``worker`` say in which
process, ``claims`` who does what, ``store`` keeps the results and ``assemble`` makes one data set of them.
"""
