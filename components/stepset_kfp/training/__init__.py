"""The components. Each component has a folder of its own, as in the category `training` of pipelines-components."""
