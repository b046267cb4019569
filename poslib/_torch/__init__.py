"""What is written for torch alone, imported when a function of the core meets a tensor that it speeds up."""
