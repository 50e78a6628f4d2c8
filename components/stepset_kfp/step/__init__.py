"""What a component does in its step's pod, or on the local machine."""
