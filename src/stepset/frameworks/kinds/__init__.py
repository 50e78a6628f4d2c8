"""One module for each framework. The name of a module is the value of `framework.kind`."""
