"""What the experiments need: tasks, a small model, training, stored results.  Needs torch."""
