"""Pod templates: containers, variables, volumes, ssh, and the merge of `pod_template`."""
