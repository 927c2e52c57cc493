"""The models that `zoo:pretrained_transformers/...` names."""
