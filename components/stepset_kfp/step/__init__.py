"""The code that the components run in the step's pod or, with KFP's local runner, on this machine."""
