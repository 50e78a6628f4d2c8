"""Texts that KFP, Argo, a shell or JSON would change if a program inserted them without escaping."""

HARD = [
    "",
    'a "quoted" \\ backslash\nnewline\ttab',
    "{{workflow.name}}",
    "{{inputs.parameters.component}}",
    "{{=1+1}}",
    "{{{{",
    "{{$.inputs.parameters['args']}}",
    "{{channel:task=;name=missing}}",
    "$value",
    "\x7f\x01\u200b\u2028é",
    "\U0001f600 \U0001f3f4\U000e0067\U000e007f",
]
