"""Models: what a language model is: weights and tokenizer from a folder, critic, LoRA, log-probabilities, sharding."""
