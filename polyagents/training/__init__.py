"""What training needs beside the model: losses, gradient cache, processes, teachers, hard negatives."""
