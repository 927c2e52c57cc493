"""The step of a training run: losses, gradient cache, several processes, teachers."""
