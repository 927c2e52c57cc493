"""The models that are named `zoo:pretrained_transformers/...`."""
