"""Variables that local nodes need in addition to the plan's: the GPUs of each node, and the options of the MPIs."""
