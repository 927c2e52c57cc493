"""What measures polyagents, side by side with what people would use instead; nothing else imports it."""
