"""Figures of a run, drawn from the files in its workdir and nothing else."""
