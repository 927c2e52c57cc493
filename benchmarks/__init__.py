"""What measures polyagents, side by side with what people would use instead; only commands that measure import it."""
