"""The built-in network, a multilayer perceptron: `model=mlp`."""
