"""The bodies of the components: they run in the step's pod or on the local machine."""
