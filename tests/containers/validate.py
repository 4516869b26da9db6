"""Validates manifests of Kubernetes against the schemas of a version, and prints the configuration of each
NetworkAttachmentDefinition, a line of JSON each.

usage: validate.py VERSION FILE...
"""

import json
import sys

import kubernetes_validate
import yaml

# Kinds that are not Kubernetes' own.
FOREIGN = {"NetworkAttachmentDefinition", "Kustomization"}

version, *files = sys.argv[1:]
for file in files:
    with open(file) as text:
        documents = list(yaml.safe_load_all(text))
    for document in documents:
        kind = document["kind"]
        if kind == "NetworkAttachmentDefinition":
            print(json.dumps(json.loads(document["spec"]["config"])))
        if kind not in FOREIGN:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                path = ".".join(map(str, error.path))
                sys.exit(f"{file}: {kind}: {path}: {error.message}")
