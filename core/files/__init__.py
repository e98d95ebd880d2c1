"""Files of this machine: permissions, reserved space, scratch folders, safetensors headers."""
