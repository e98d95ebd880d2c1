"""Pretrained weights on their way from the Hugging Face Hub: the process that downloads, who watches it, what
it leaves."""
