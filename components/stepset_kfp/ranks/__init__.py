"""The program that runs in the ranks of a distributed component, and the exchange of files between ranks and step."""
