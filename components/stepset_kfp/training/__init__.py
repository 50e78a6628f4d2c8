"""Components of the category `training`, one folder each, as in kubeflow/pipelines-components."""
