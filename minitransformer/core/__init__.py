"""The paper: mathematics, parameters, three models, tokens, a training loop and decoding."""
