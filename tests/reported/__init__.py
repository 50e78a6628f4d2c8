"""Problems that users of other projects reported, and variations of these problems, tried on stepset."""
